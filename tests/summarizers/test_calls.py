import pytest

from context_compressor.summarizers.extracts.calls import kind_of_call


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        ("git push origin main", "sh git push origin"),
        ("git status --short", "sh git status"),
        ("kubectl rollout undo deploy/api", "sh kubectl rollout undo"),
        ("npm run build -- --prod", "sh npm run build"),
        ("pytest tests/test_a.py", "sh pytest"),
        ("cd infra && terraform init", "sh terraform init"),
        ("export TF_LOG=1 && cd infra; terraform init", "sh terraform init"),
        ("set -e\n. venv/bin/activate\nTZ=UTC make test", "sh make test"),
        ("cd a && cat b.py", "show"),
        ("cat > a.py <<'EOF'\nprint(1)\nEOF\npython a.py", "sh cat"),
        ("cat <<'EOF' >> notes.md && make\nx\nEOF", "sh cat"),
        ("cat -n a.py", "show"),
        ("cd infra", "sh cd infra"),
        ("setup all", "sh setup all"),
        ("", "sh"),
    ],
)
def test_commands_are_of_the_kind_of_what_they_run(command, kind):
    assert kind_of_call("sh", command) == kind
