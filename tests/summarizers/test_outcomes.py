import json
import re

import pytest

from context_compressor.summarizers.extracts.outcomes import read_outcome


@pytest.mark.parametrize(
    ("text", "outcome", "failed"),
    [
        ("", "", False),
        ("<returncode>0</returncode>\n<output>\n</output>", "", False),
        ("<returncode>0</returncode>\n<output>\nall good here\n</output>", "all good here", False),
        ("Successfully replaced text in /a/very/long/path.py. Changed 4 lines.", "ok", False),
        ("The file /x/y.py has been edited. Here's the result...", "ok", False),
        ("The file /x/y.py has been edited as follows:\n1:a\n2:b", "ok", False),
        ("success: true", "ok", False),
        ("success: true\nticket: T-4711\nqueue: billing", "ticket: T-4711 | queue: billing", False),
        (
            "ok: true\nmatched_tools:\n"
            + "- server_name: docs\n  tool_name: convert\n  note: |\n    x\n" * 9,
            "server_name: docs, tool_name: convert (39 lines)",
            False,
        ),
        ("File updated. Please review the changes.\n[File: /x/y.py (9 lines total)]\n1:a", "ok", False),
        (
            "Your proposed edit has introduced new syntax error(s).\n\nERRORS:\n- E999 unexpected indent\n"
            "Your changes have NOT been applied. Try again.",
            "Your changes have NOT been applied. Try again.",
            True,
        ),
        ("collected 9 items\n...\n2 failed, 7 passed in 0.3s\n", "2 failed, 7 passed in 0.3s", True),
        ("0 failed, 7 passed\n", "0 failed, 7 passed", False),
        ("Ran 12 tests in 0.1s\n\nOK", "Ran 12 tests in 0.1s", False),
        ("Traceback (most recent call last):\n  File \"a.py\"\nKeyError: 'x'\n", "KeyError: 'x'", True),
        ("bash: line 1: foo: command not found", "bash: line 1: foo: command not found", True),
        ("cat: a.txt: No such file or directory\n", "cat: a.txt: No such file or directory", True),
        ('{"status": "open", "items": [{"id": "7"}]}', "status: open, items: id: 7", False),
        ('{"said": "a \\"b\\" c"}', "said: a b c", False),
        ('{"error": "order not found"}', "error: order not found", True),
        ("```diff\n--- a.md\n+++ a.md\n```", "--- a.md | +++ a.md", False),
        ("\n".join(f"line {n}" for n in range(40)), "line 0 … line 39 (40 lines)", False),
    ],
)
def test_the_outcome_of_a_result_is_one_telling_line(text: str, outcome: str, failed: bool):
    assert read_outcome(text) == (outcome, failed)


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        (
            "ok  \ta.com/a\t0.012s\n--- FAIL: TestParse (0.00s)\n    --- FAIL: TestParse/empty (0.00s)\n"
            "FAIL\ta.com/b\t0.1s",
            "FAIL a.com/b 0.1s: TestParse, TestParse/empty",
        ),
        (
            "[ERROR] COMPILATION ERROR : \n[ERROR] /w/A.java:[9,70] cannot find symbol\n"
            "[ERROR]   symbol:   variable Mode\n[INFO] 1 error\n[INFO] BUILD FAILURE\n"
            "[ERROR] Failed to execute goal compile: Compilation failure\n"
            "[ERROR] /w/A.java:[9,70] cannot find symbol\n[ERROR]   symbol:   variable Mode\n"
            "[ERROR] -> [Help 1]\n[ERROR] After correcting the problems, you can resume the build with\n"
            "[ERROR]   mvn <args> -rf :core",
            "[INFO] 1 error: [ERROR] /w/A.java:[9,70] cannot find symbol",
        ),
        ("[INFO]   starting\n[ERROR]  The table is gone", "[ERROR] The table is gone"),
        ("ok 1 - adds\nnot ok 2 - subtracts\n# fail 1", "not ok 2 - subtracts"),
        ("Done in 3s\nnpm ERR! code ELIFECYCLE", "npm ERR! code ELIFECYCLE"),
        ("Applied 0 of 3 patches; 3 rejected", "Applied 0 of 3 patches; 3 rejected"),
        ("  12 passing\n  2 failing", "2 failing"),
        ("ERROR:\nNo replacement was performed.", "ERROR: No replacement was performed."),
        ("错误：\n没有权限", "错误： 没有权限"),
        ("╷\n│ Error: Invalid reference\n│\n│   on main.tf line 12\n╵", "│ Error: Invalid reference"),
        ("> Task :compileJava FAILED\n\nBUILD FAILED in 3s\n", "BUILD FAILED in 3s"),
        ("MCP error -32602: Invalid arguments", "MCP error -32602: Invalid arguments"),
        ("Failed to edit, 0 occurrences found", "Failed to edit, 0 occurrences found"),
        ("panic: index out of range\n\ngoroutine 1 [running]:", "panic: index out of range"),
        ("npm error code ERESOLVE\nnpm error A log", "npm error code ERESOLVE npm error A log"),
        ("退款失败：订单已发货，无法取消", "退款失败：订单已发货，无法取消"),
        ("Ошибка: заказ не найден", "Ошибка: заказ не найден"),
        ('{"code":500,"msg":"库存不足"}', "code:500,msg:库存不足"),
        ('{"errcode":40001,"errmsg":"no"}', "errcode:40001,errmsg:no"),
        ('{"statusCode": 404, "message": "no"}', "statusCode: 404, message: no"),
    ],
)
def test_a_failure_is_not_called_ok(text: str, outcome: str):
    assert read_outcome(text) == (outcome, True)


@pytest.mark.parametrize(
    "text",
    [
        "没有失败，都完成了",
        "Failed tests: none",
        "panicked buyers",
        '{"code":0,"msg":"ok"}',
        '{"code":200,"message":"done"}',
        '{"code":"US","msg":1}',
        '{"errcode":0,"errmsg":"ok"}',
        '{"status":200,"count":404}',
    ],
)
def test_what_resembles_a_failure_is_none(text: str):
    assert not read_outcome(text)[1]


@pytest.mark.parametrize(
    "text",
    ["OK 0, unreachable 5 hosts", "Success rate: 12 %", "Edited 0 files: no match", "ok  example.com/a 0.1s"],
)
def test_what_begins_like_a_success_is_told_as_it_is(text: str):
    assert read_outcome(text) == (" ".join(text.split()), False)


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("<returncode>1</returncode>\n<output>\n</output>", "exit code 1"),
        (
            "<returncode>2</returncode>\n<output>\nmalformed patch at line 8\n</output>",
            "exit code 2: malformed patch at line 8",
        ),
        ("12 rows\n\nCommand exited with code 1", "exit code 1: 12 rows"),
        ("> build\n[Command finished with exit code 2]", "exit code 2: > build"),
        ("Exit code 1\nok", "exit code 1"),
        ("<returncode>1</returncode>\n4 passed", "exit code 1: 4 passed"),
        ("<returncode>1</returncode>\nError: no rows", "Error: no rows"),
    ],
)
def test_the_status_of_a_command_is_told_as_such_where_nothing_else_tells_of_the_failure(
    text: str, outcome: str
):
    assert read_outcome(text) == (outcome, True)


def test_a_status_amid_the_output_is_not_that_of_the_command():
    text = "<returncode>0</returncode>\nchild 1\nExit code: 3\nchild 2\n"
    assert read_outcome(text) == ("child 1 | Exit code: 3 | child 2", False)


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        (
            'Traceback (most recent call last):\r\n  File "a.py", line 1\r\n    x()\r\n'
            "django.core.exceptions.AppRegistryNotReady: Apps aren't loaded yet.\r\n$ ",
            "django.core.exceptions.AppRegistryNotReady: Apps aren't loaded yet.",
        ),
        ("> tsc\nsrc/a.ts(3,4): error TS2322: no such type\n", "src/a.ts(3,4): error TS2322: no such type"),
        ("cc a.c\na.c:3:5: fatal error: x.h: missing\n", "a.c:3:5: fatal error: x.h: missing"),
        (
            "[INFO] Scanning\n[ERROR] /a/B.java:[3,5] no symbol\n[INFO] FAILURE",
            "[ERROR] /a/B.java:[3,5] no symbol",
        ),
        ("[INFO] Scanning\nTests run: 5, Failures: 1, Errors: 0\n", "Tests run: 5, Failures: 1, Errors: 0"),
        ("\x1b[31m1 failed\x1b[39m, \x1b[32m3 passed\x1b[39m", "1 failed, 3 passed"),
        ("12 passed\n> tsc\nerror TS1005: missing ;", "error TS1005: missing ;"),
        ("C:\\a\\B.cs(3,4): error CS0103: no name\nend", "C:\\a\\B.cs(3,4): error CS0103: no name"),
        ("src/a.ts:3:4 - error TS2322: no type\n\n3 x", "src/a.ts:3:4 - error TS2322: no type"),
        ("# shop/cart\n./cart.go:3:4: undefined: rate\n", "./cart.go:3:4: undefined: rate"),
        (
            "3 4\nbash: line 1: 77 Segmentation fault  ./sim 5\n",
            "bash: line 1: 77 Segmentation fault ./sim 5",
        ),
        ("bash: line 4:  8 Killed      java -jar a.jar", "bash: line 4: 8 Killed java -jar a.jar"),
        (
            "Starting\n\nProgram received signal SIGSEGV, Segmentation fault.\n0x5f in main ()",
            "Program received signal SIGSEGV, Segmentation fault.",
        ),
        (
            "==7==ERROR: AddressSanitizer: SEGV\n  #0 main\nSUMMARY: AddressSanitizer: SEGV a.c:7 in main",
            "SUMMARY: AddressSanitizer: SEGV a.c:7 in main",
        ),
        (
            "running\nthread 'main' panicked at src/main.rs:4:5:\nindex out of bounds: 9\nnote: run with",
            "thread 'main' panicked at src/main.rs:4:5: index out of bounds: 9",
        ),
        ("a: 2 failed, 5 passed\nb: 7 passed", "a: 2 failed, 5 passed, b: 7 passed"),
        ('[{"errorCode": "NO_STOCK", "message": "try later"}]', "errorCode: NO_STOCK, message: try later"),
        ('{"status": "failed", "code": "LOCKED"}', "status: failed, code: LOCKED"),
        ('{"code": 40312, "msg": "提交失败：已离职"}', "code: 40312, msg: 提交失败：已离职"),
        ('{"ok": false, "reason": "on hold"}', "ok: false, reason: on hold"),
        ("cc a.c\nmake[1]: *** [Makefile:7: a.o] Error 1", "make[1]: *** [Makefile:7: a.o] Error 1"),
        ("Error: no cache\nmake: *** [Makefile:7: all] Error 1", "Error: no cache"),
        (
            "-- Found Git\nCMake Error at CMakeLists.txt:9 (find_package):\n  No package Foo.\n\n-- End",
            "CMake Error at CMakeLists.txt:9 (find_package): No package Foo.",
        ),
        (
            "Pulling\ndocker: Error response from daemon: denied.",
            "docker: Error response from daemon: denied.",
        ),
        ("curl: (6) Could not resolve host: a.example", "curl: (6) Could not resolve host: a.example"),
        ("HTTP/1.1 503 Service Unavailable\n\nbusy", "HTTP/1.1 503 Service Unavailable busy"),
        (
            'HTTP/2 401\r\nx-id: 7\r\n\r\n{"code":"token_expired"}',
            'HTTP/2 401 {"code":"token_expired"}',
        ),
        (
            "error[E0382]: borrow of moved value: `tx`\n  --> src/ledger.rs:88:20\n   |\n"
            "error: could not compile `wallet` (lib test) due to 1 previous error",
            "error[E0382]: borrow of moved value: `tx` --> src/ledger.rs:88:20",
        ),
        (
            "---\nUnidentifiedImage                Traceback (most recent call last)\nCell In[9], line 1\n"
            "----> 1 next(it)\n\nUnidentifiedImage: cannot identify 'a.jpg'\n",
            "UnidentifiedImage: cannot identify 'a.jpg'",
        ),
        (
            "KeyboardInterrupt                Traceback (most recent call last)\nCell In[9], line 1\n"
            "----> 1 run()\n\nKeyboardInterrupt: \n",
            "KeyboardInterrupt",
        ),
        ('{"error":{"message":"ERROR: no table"}}', "error: message:ERROR: no table"),
        ("The user denied this operation.", "The user denied this operation."),
        ("User rejected the edit of a.py", "User rejected the edit of a.py"),
        ("[Request interrupted by user for tool use]", "[Request interrupted by user for tool use]"),
        (
            "Failed to compile.\n\nModule not found: Error: Can't resolve './b'\n",
            "Module not found: Error: Can't resolve './b'",
        ),
        (
            "main.c:(.text+0x1f): undefined reference to `f'\ncollect2: error: ld returned 1 exit status",
            "main.c:(.text+0x1f): undefined reference to `f'",
        ),
        (
            'npm error code E404\nERROR: failed to solve: process "/bin/sh -c npm ci" did not complete',
            "npm error code E404",
        ),
        ("00:01 +3: loads\n00:02 +11 -1: Some tests failed.\n", "00:02 +11 -1: Some tests failed."),
        ("│ Passing:      2 │\n│ Failing:      1 │\n", "Failing: 1"),
        (
            "F.\n\n  1) Cart totals\n     expected 3\n\n2 examples, 1 failure",
            "2 examples, 1 failure: Cart totals",
        ),
        ("Tool call timed out.", "Tool call timed out."),
        ("The user cancelled this operation.", "The user cancelled this operation."),
        (
            "dial tcp 10.0.0.1:6443: connect: connection refused",
            "dial tcp 10.0.0.1:6443: connect: connection refused",
        ),
    ],
)
def test_a_failure_is_found_however_it_is_written(text: str, outcome: str):
    assert read_outcome(text) == (outcome, True)


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("ApiError.ts\nerror.log\nerror-pages/", "ApiError.ts | error.log | error-pages/"),
        ('{"error": null, "id": "7"}', "error: null, id: 7"),
        ('{"errorCode": "0", "errors": [], "id": "7"}', "errorCode: 0, errors: none, id: 7"),
        ("[]", "[]"),
        ("[('Oslo', 3)]", "('Oslo', 3)"),
        ("[12:00:01] served 7", "[12:00:01] served 7"),
        ("HTTP/1.1 200 OK", "HTTP/1.1 200 OK"),
        ("Found 1 error (1 fixed, 0 remaining).", "Found 1 error (1 fixed, 0 remaining)."),
        (
            "-rw-r--r-- 1 root root 4492 Apr 30 08:32 error.h",
            "-rw-r--r-- 1 root root 4492 Apr 30 08:32 error.h",
        ),
        ("7 failed/ 12 errors.py", "7 failed/ 12 errors.py"),
        ("0\n", "0"),
    ],
)
def test_what_is_no_failure_is_told_as_it_is(text: str, outcome: str):
    assert read_outcome(text) == (outcome, False)


def test_the_marks_of_a_preview_are_no_outcome():
    stub = "[Offloaded tool result ctx://0123456789abcdef: 9 lines]\n[lines 1-2]\n"
    told = read_outcome(stub + "2 rows\n[line 9]\nend\n[also contains: a.b]")
    assert told == ("2 rows … end (2 lines)", False)


def test_a_text_that_left_has_the_lines_that_it_had():
    stub = "[Offloaded tool result ctx://0123456789abcdef: 68 lines, 7000 characters, 3000 tokens]\n"
    shown = "".join(f"[line {n}]\nrow {n}\n" for n in range(1, 40, 3))
    assert read_outcome(stub + shown) == ("row 1 … row 37 (68 lines)", False)
    code = f"{stub}[lines 1-4]\nimport os\n\nclass Reader:\n    pass\n\nclass Writer:\n"
    assert read_outcome(code, is_read=True)[0] == "class Reader, class Writer (68 lines)"


def test_a_number_of_lines_beyond_what_python_reads_is_no_number():
    forged = f"[Offloaded tool result ctx://0123456789abcdef: {'9' * 4500} lines]\nfoo"
    assert read_outcome(forged) == ("foo", False)


def test_a_sentence_that_announces_something_gives_way_to_it():
    said = "Here is the result of the last command:\n"
    assert read_outcome(said + "3 rows changed")[0] == "3 rows changed"
    assert read_outcome(said)[0] == said.strip()
    assert read_outcome("OBSERVATION:\n3 rows changed")[0] == "3 rows changed"


def test_a_label_of_errors_amid_the_output_is_no_failure():
    assert read_outcome("case 1\nError:\n<output>") == ("case 1 | Error:", False)


@pytest.mark.parametrize("is_error", [False, True])
def test_what_a_server_of_tools_marks_as_an_error_is_one(is_error: bool):
    data = json.dumps({"content": [{"type": "text", "text": "x" * 200}], "isError": is_error}, indent=1)
    assert read_outcome(data)[1] == is_error
    assert read_outcome(data, is_read=True)[1] == is_error


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        (
            "Waiting for the rollout: 1 of 3\n" * 9 + "rolled out",
            "Waiting for the rollout: 1 of 3 … rolled out (10 lines)",
        ),
        (
            "INFO: 12 targets\n" + "//a:test PASSED\n" * 11 + "INFO: 1 test FAILED",
            "INFO: 12 targets … INFO: 1 test FAILED (13 lines)",
        ),
        (
            "\nCreating pull request for fix/lines into main, in the repository a.example/shop\n\n"
            "https://a.example/shop/pull/482\n",
            "Creating pull request for fix/lines into main, … https://a.example/shop/pull/482 (2 lines)",
        ),
        (
            "\n".join(f"{number} {'and goes on ' * 9}" for number in range(14)),
            "0 and goes on and goes on and goes on and goes … "
            "13 and goes on and goes on and goes on and goes … (14 lines)",
        ),
    ],
)
def test_of_what_a_program_printed_both_ends_are_told(text: str, outcome: str):
    """The last line of a program that tells of its progress says what came of it."""
    assert read_outcome(text) == (outcome, False)


def test_a_suite_without_tests_does_not_hide_those_that_ran():
    ran = "test result: ok. 14 passed; 0 failed\n\n   Doc-tests shop\n\ntest result: ok. 0 passed; 0 failed"
    assert read_outcome(ran) == ("test result: ok. 14 passed; 0 failed", False)
    assert read_outcome("==== 0 passed ====") == ("0 passed", False)


def test_a_sentence_before_an_announcement_is_told():
    """That an edit matched nothing must not give way to the lines that are offered instead."""
    said = "The SEARCH block did not match any lines in shop/cart.py. Did you mean:\n"
    assert read_outcome(said + "    def total(self):\n" * 9)[0].startswith("The SEARCH block did not match")


def test_of_a_long_error_its_head_and_its_tail_are_told():
    where = "│ Error: updating the database (orders): operation error ModifyDBInstance, "
    text = f"{where}https response {'RequestID 0c1d, ' * 9}cannot upgrade from 13.7 to 15.2"
    outcome, failed = read_outcome(text)
    assert failed
    assert len(outcome) <= 160
    assert outcome.startswith(where.strip())
    assert outcome.endswith("cannot upgrade from 13.7 to 15.2")


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        (
            'Exception in thread "main" a.B: no source\n\tat a.C.load(C.java:7)\nCaused by: '
            "java.io.FileNotFoundException: /etc/shop.yml (No such file)\n\t... 2 more",
            "Caused by: java.io.FileNotFoundException: /etc/shop.yml (No such file)",
        ),
        (
            "B.java:33: error: incompatible types\n1 error\n\n* What went wrong:\n"
            "Execution failed for task ':compileJava'.\n\nBUILD FAILED in 2s",
            "1 error: B.java:33: error: incompatible types",
        ),
        (
            "  Failed Cart.Adds [12 ms]\n  Error Message:\n   Expected 19\nFailed!  - Failed: 1, Passed: 2",
            "Failed! - Failed: 1, Passed: 2: Cart.Adds",
        ),
    ],
)
def test_the_line_is_told_that_says_why(text: str, outcome: str):
    assert read_outcome(text) == (outcome, True)


def test_of_a_long_record_the_line_is_told_that_failed():
    rows = [f"key {n}:  value {n}" for n in range(20)]
    record = "\n".join(["Name:    web-1", "Status:  Running", *rows, "State:", "    Reason:     OOMKilled"])
    outcome, failed = read_outcome(record)
    assert outcome.startswith("Name: web-1, Status: Running, ")
    assert outcome.endswith(" … Reason: OOMKilled (24 lines)")
    assert len(outcome) <= 135
    assert not failed


def test_a_page_in_one_line_is_told_by_its_title():
    page = f"<!doctype html><html><head><title>Incident 4711</title></head><body>{'<p>a</p>' * 40}</body>"
    assert read_outcome(page) == ("Incident 4711", False)
    assert read_outcome(f"{page}{chr(10) * 20}", is_read=True) == ("Incident 4711 (21 lines)", False)


def test_a_diff_of_several_files_is_told_by_these():
    parts = [f"diff --git a/src/{name}.ts b/src/{name}.ts\n@@ -1 +1 @@\n-a\n+b\n" for name in ("cart", "tax")]
    assert read_outcome("".join(parts)) == ("diff of 2 files: src/cart.ts, src/tax.ts", False)
    assert read_outcome(f"commit 1a2b\n\n    Mend it\n\n{''.join(parts)}")[0].startswith("commit 1a2b … ")
    assert read_outcome(parts[0])[0].startswith("diff --git a/src/cart.ts b/src/cart.ts | @@")


def test_what_is_cut_out_of_a_long_list_is_not_counted():
    hits = [f"{n}. [Hut {n}](https://huts.example/{n})\n{'A hut. ' * 40}\n" for n in range(1, 31)]
    assert read_outcome("\n".join(hits[:3]))[0].startswith("3 found: Hut 1; Hut 2; Hut 3")
    assert read_outcome("\n".join(hits))[0].startswith("found: Hut 1; Hut 2; ")
    diff = "".join(f"diff --git a/{n}.py b/{n}.py\n+{'x' * 400}\n" for n in range(30))
    assert read_outcome(diff)[0].startswith("diff of files: 0.py, 1.py, ")


def test_data_that_was_read_is_told_without_its_marks():
    data = json.dumps({"name": "web", "private": True, "scripts": {"test": "vitest"}}, indent=2)
    assert read_outcome(data, is_read=True) == (
        "name: web, private: true, scripts: test: vitest (7 lines)",
        False,
    )


def test_a_template_that_was_read_is_no_data():
    template = "{% load static %}\nclass StaticNode(Node):\n    def render(self):\n        return 1\n"
    assert read_outcome(template, is_read=True)[0].startswith("class StaticNode")


def test_what_pandas_says_of_a_frame_first_is_what_it_is():
    info = "<class 'pandas.core.frame.DataFrame'>\nRangeIndex: 891 entries\n" + "  0  a  891 non-null\n" * 5
    assert read_outcome(f"{info}memory usage: 83.7+ KB")[0].startswith(
        "RangeIndex: 891 entries … memory usage"
    )


def test_what_did_not_succeed_is_not_called_ok():
    assert read_outcome("success: false\ncode: 7") == ("success: false | code: 7", False)
    assert read_outcome('{"success": false, "code": 7}') == ("success: false, code: 7", True)
    assert not any(read_outcome('{"a": "%s", "error": null}' % ("x" * n))[1] for n in range(170, 200))


def test_a_short_result_is_told_as_a_whole():
    assert read_outcome(" max_connections \n-----\n 200\n(1 row)\n")[0] == "max_connections | 200 | (1 row)"
    assert read_outcome("name\n" + "row\n" * 30)[0] == "name … row (32 lines)"
    line = "It leaves out lines " + ", ".join(map(str, range(721, 741)))
    assert read_outcome(line)[0] == line


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        (
            "  + create\nPlan: 1 to add, 2 to destroy.\n\nNote: no -out",
            "Plan: 1 to add, 2 to destroy.",
        ),
        (
            "a: Modifying...\na: Still modifying...\n\nApply complete! Resources: 0 added.",
            "Apply complete! Resources: 0 added.",
        ),
        (
            "Collecting a\nInstalling a\nSuccessfully installed a-1.0",
            "Successfully installed a-1.0",
        ),
        ("> Task :test\n\nBUILD SUCCESSFUL in 3s", "BUILD SUCCESSFUL in 3s"),
    ],
)
def test_what_a_program_says_in_the_end_outweighs_what_it_began_with(text: str, outcome: str):
    assert read_outcome(text) == (outcome, False)


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        (
            "FAILED tests/test_a.py::TestA::test_vat[1-2] - assert 1\nFAILED tests/test_b.py::test_c\n"
            "====== 2 failed, 9 passed in 0.1s ======",
            "2 failed, 9 passed in 0.1s: tests/test_a.py::TestA::test_vat[1-2], tests/test_b.py::test_c",
        ),
        (
            "FAIL: test_sum (a.b.SumTest)\n\nRan 3 tests\n\nFAILED (failures=1)",
            "FAILED (failures=1): test_sum",
        ),
        (
            "Running\nFAIL: Got ValueError for a null byte\n\nSome tests failed!",
            "Some tests failed!: FAIL: Got ValueError for a null byte",
        ),
        (
            "test money::adds ... ok\ntest money::splits ... FAILED\ntest result: FAILED. 1 passed; 1 failed",
            "test result: FAILED. 1 passed; 1 failed: money::splits",
        ),
        (
            "[ERROR] Tests run: 7, Failures: 1 <<< FAILURE! -- in a.b.CartIT\n"
            "[ERROR] a.b.CartIT.empties -- Time elapsed: 0.1 s <<< ERROR!\n[INFO] BUILD FAILURE",
            "[ERROR] Tests run: 7, Failures: 1 <<< FAILURE! -- in a.b.CartIT: a.b.CartIT.empties",
        ),
        ("  ● Cart › adds\n\nTests: 1 failed, 8 passed", "Tests: 1 failed, 8 passed: Cart › adds"),
        (
            "CartTest > adds() FAILED\n    at CartTest.java:14\n\n9 tests completed, 1 failed",
            "9 tests completed, 1 failed: CartTest > adds()",
        ),
        ("======= 12 passed in 3s =======", "12 passed in 3s"),
    ],
)
def test_a_tally_names_the_tests_that_failed(text: str, outcome: str):
    assert read_outcome(text)[0] == outcome


LONG = "\n" + "more to say\n" * 20


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("- id: K-1\n  name: Ada\n  notes:\n    - rang" + LONG, "id: K-1, name: Ada (25 lines)"),
        ("kind: Pod\nmetadata:\n  name: a-1" + LONG, "kind: Pod, name: a-1 (24 lines)"),
        (
            '<?xml version="1.0"?>\n<order>\n<id>K-1</id>\n<état code="2">ouvert</état>\n</order>' + LONG,
            "id: K-1, état: ouvert (26 lines)",
        ),
        ("<o><id>K-1</id><of>Ada</of></o>" + LONG, "id: K-1, of: Ada (22 lines)"),
        (
            '<?xml version="1.0"?><s:Envelope xmlns:s="http://a.example/s"><s:Body><r:id>K-1</r:id><r:of>Ada</r:of>'
            "</s:Body></s:Envelope>" + LONG,
            "id: K-1, of: Ada (22 lines)",
        ),
        ('\n<!DOCTYPE html>\n<html lang="de">\n<head>\n<title>Shop</title>' + LONG, "Shop (26 lines)"),
        ("See <title>Shop</title> there" + LONG, "See Shop there … more to say (22 lines)"),
        ("\n<div><b>alpha</b>\n<i>beta</i></div>" + LONG, "alpha (24 lines)"),
        ("id: K-1\nname: Ada\nid: K-2\nname: Bob" + LONG, "id: K-1, name: Ada (25 lines)"),
        ("id: K-1\nbilling address:\n  city: Oslo" + LONG, "id: K-1, city: Oslo (24 lines)"),
        ("name:    web-1\nstatus:  failed" + LONG, "name: web-1, status: failed (23 lines)"),
        ("Successfully created: yes\nid: K-1" + LONG, "ok"),
        ("Note: all of it is there" + LONG, "Note: all of it is there … more to say (22 lines)"),
    ],
)
def test_a_record_is_told_by_its_first_values(text: str, outcome: str):
    assert read_outcome(text) == (outcome, False)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "Get-Item : Cannot find path 'C:\\x'.\nAt line:1 char:1\n+ Get-Item C:\\x\n+ ~~~~~~~~~~~~~",
            "Get-Item : Cannot find path 'C:\\x'. At line:1 char:1",
        ),
        ("(./a.aux)\n! Undefined control sequence.\nl.42 \\includ", "! Undefined control sequence."),
        ("(./a.aux)\n! LaTeX Error: File `a.sty' not found.\n?", "! LaTeX Error: File `a.sty' not found."),
    ],
)
def test_an_error_amid_an_output_is_told(text: str, told: str):
    assert read_outcome(text + LONG) == (told, True)


@pytest.mark.parametrize(
    ("text", "outcome", "failed"),
    [
        (
            '<?xml version="1.0"?>\n<s:Envelope xmlns:s="http://a.example/s">\n<s:Body><s:Fault>'
            "<faultcode>s:Server</faultcode><faultstring>Number is used</faultstring></s:Fault>"
            "</s:Body></s:Envelope>",
            "faultcode: s:Server, faultstring: Number is used",
            True,
        ),
        (
            "<Error><Code>NoSuchKey</Code><Message>The key does not exist.</Message></Error>",
            "Code: NoSuchKey | Message: The key does not exist.",
            True,
        ),
        ("<a><id>7</id><Error>none</Error></a>", "id: 7 | Error: none", False),
    ],
)
def test_an_answer_in_xml_that_holds_but_an_error_is_one(text: str, outcome: str, failed: bool):
    assert read_outcome(text) == (outcome, failed)


def test_a_step_of_a_browser_came_to_the_page_where_it_led():
    ran = "### Ran Playwright code\n```js\nawait page.click();\n```\n### Page state\n"
    page = "- Page URL: https://a.example/cart\n- Page Title: Your cart\n- Page Snapshot:\n- button"
    assert read_outcome(ran + page) == ("https://a.example/cart Your cart", False)
    assert read_outcome("Error: no such node\n" + page) == ("Error: no such node", True)


MANY = "\n".join(f"step {number}" for number in range(40))


@pytest.mark.parametrize(
    ("text", "outcome", "failed"),
    [
        ("[INFO] BUILD FAILURE\n[INFO] Total time: 2 s", "[INFO] BUILD FAILURE", True),
        (
            "[INFO] BUILD FAILURE\n[ERROR] /src/App.java:[10,5] cannot find symbol\n[ERROR] -> [Help 1]\n"
            "[ERROR] Re-run Maven using the -X switch to enable full debug logging.",
            "[ERROR] /src/App.java:[10,5] cannot find symbol",
            True,
        ),
        (
            "* What went wrong:\nExecution failed for task ':compileJava'.\n\nBUILD FAILED in 3s",
            "Execution failed for task ':compileJava'.",
            True,
        ),
        (
            "error[E0308]: mismatched types\nerror: could not compile `demo` due to 1 previous error",
            "error[E0308]: mismatched types",
            True,
        ),
        (
            "src/a.ts(3,5): error TS2322: No number.\nFound 1 error in src/a.ts",
            "Found 1 error in src/a.ts: src/a.ts(3,5): error TS2322: No number.",
            True,
        ),
        ("50% tests passed, 1 tests failed out of 2", "50% tests passed, 1 tests failed out of 2", True),
        ("host1 : ok=10 unreachable=0 failed=1", "host1 : ok=10 unreachable=0 failed=1", True),
        ("Done. PASS=3 WARN=0 ERROR=1 SKIP=2", "Done. PASS=3 WARN=0 ERROR=1 SKIP=2", True),
        ("Done. PASS=3 WARN=0 ERROR=0 SKIP=2", "Done. PASS=3 WARN=0 ERROR=0 SKIP=2", False),
        ("Database Error in model orders (a.sql)", "Database Error in model orders (a.sql)", True),
        ("Validation Error: no such field", "Validation Error: no such field", True),
        ("E: Unable to locate package foo", "E: Unable to locate package foo", True),
        ("[INFO] BUILD SUCCESS\n[INFO] Total time: 3 s", "[INFO] BUILD SUCCESS", False),
    ],
)
def test_of_a_long_output_the_line_is_told_that_says_why_it_failed(text: str, outcome: str, failed: bool):
    assert read_outcome(f"{MANY}\n{text}") == (outcome, failed)


ERRORS = r"""
failed to solve: rpc error: code = Unknown desc = no such file ¦ 错误 E1032：服务器没有响应
./run.sh: line 3: 12345 Aborted                 (core dumped) ./prog
./run.sh: line 9: 88 Bus error               ./prog ¦ ./run.sh: line 9: 88 Killed                  ./prog
Segmentation fault (core dumped) ¦ Segmentation fault ¦ Killed ¦ Aborted
Thread 1 "prog" received signal SIGSEGV, Segmentation fault.
E: Could not get lock /var/lib/dpkg/lock-frontend - open (11: Resource temporarily unavailable)
E: Package 'libfoo' has no installation candidate
E: Failed to fetch http://deb.debian.org/debian/foo.deb  404  Not Found
E: Sub-process /usr/bin/dpkg returned an error code (1)
E: Unmet dependencies. Try 'apt --fix-broken install' with no packages.
E: The repository 'http://a.example stable Release' does not have a Release file.
PHP Fatal error:  Uncaught Error: Call to undefined function foo() in /a.php:3
Fatal error: Uncaught Error: Call to undefined function foo() in /a.php:3
PHP Parse error:  syntax error, unexpected '}' in /a.php on line 4
Parse error near line 1: near "SELCT": syntax error
Runtime error near line 1: UNIQUE constraint failed: users.email (19)
Uncaught TypeError: x is not a function
Unhandled exception. System.NullReferenceException: Object reference not set
a.c:5:3: runtime error: signed integer overflow: 2147483647 + 1 cannot be represented in type 'int'
==12345==ERROR: AddressSanitizer: heap-buffer-overflow on address 0x60
CMake Error: The source directory "/a" does not appear to contain CMakeLists.txt. ¦ HTTP/2 503
make: *** No targets specified and no makefile found.  Stop.
make[1]: *** No rule to make target 'foo', needed by 'all'.  Stop.
mkdir: cannot create directory 'foo': File exists ¦ collect2: error: ld returned 1 exit status
gcc: fatal error: no input files ¦ jq: parse error: Invalid numeric literal at line 1, column 4
jq: error (at <stdin>:1): Cannot index array with string "a"
bash: line 1: syntax error near unexpected token `('
ERR_PNPM_NO_MATCHING_VERSION No matching version found for foo@9
terminate called after throwing an instance of 'std::runtime_error'
a.out: a.c:5: main: Assertion `x > 0' failed.
Assertion failed: (x > 0), function main, file a.c, line 5.
Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?
wget: unable to resolve host address 'nope.example'
<tool_use_error>File has not been read yet.</tool_use_error> ¦ npm ERR! code ENOENT ¦ 查询失败! 请重试
エラー: ファイルが見つかりません ¦ Fehler: Datei nicht gefunden ¦ Erreur : fichier introuvable
10 examples, 1 failure, 2 pending ¦ Tests run: 3, Failures: 0, Errors: 1, Skipped: 0
{"errors": [{"message": "Field 'x' doesn't exist on type 'Query'"}]}
{"errorMessages": ["Issue does not exist"], "errors": {}} ¦ {'status': 'fail', 'reason': 'x'}
psql:/tmp/q.sql:3: FATAL:  terminating connection due to administrator command
SUMMARY: ThreadSanitizer: data race /tmp/race.c:6 in inc
e: file:///src/Main.kt:3:5 Unresolved reference: foo
psql:/tmp/q.sql:3: ERROR:  syntax error at or near "FORM" ¦ (error) WRONGTYPE Operation against a key
An error occurred (AccessDenied) when calling the PutObject operation: Access Denied
** BUILD FAILED ** ¦ ** (CompileError) lib/a.ex:3: undefined function foo/0 ¦ Failure: invalid move e2e5
'foo' is not recognized as an internal or external command, ¦ Operation timed out after 30 seconds
Can't locate Foo/Bar.pm in @INC (you may need to install the Foo::Bar module) at x.pl line 3.
오류: 해당 상품은 품절되었습니다. ¦ خطأ: البطاقة غير صالحة ¦ Hata: Ürün bulunamadı ¦ Erro: saldo insuficiente
Errore: prodotto esaurito ¦ Lỗi: không tìm thấy ¦ HTTP 500: Internal Server Error ¦ HTTP 404 Not Found
不明なエラーが発生しました。 ¦ 요청 처리 중 오류가 발생했습니다. ¦ 查询时发生错误。 ¦ 处理订单时发生了错误
docker: manifest for acme/api:9 not found: manifest unknown: manifest unknown.
Tool call failed: rate limit exceeded ¦ Validation error: 'date' is required
No replacement was performed, old_str `x` did not appear verbatim ¦ Request failed with status code 404
rsync error: some files were not transferred (code 23) ¦ Could not resolve host: api.example.com
Host key verification failed. ¦ nginx: [emerg] unknown directive "foo" in /etc/nginx/nginx.conf:3
{"error_message": "You must use an API key", "status": "REQUEST_DENIED"} ¦ {"errno": -6, "request_id": 1}
{"code": -32601, "message": "Method not found"} ¦ {"detail": "Not Found"} ¦ {"message": "Bad credentials"}
{"message": "Not Found", "status": "404"}
{"kind": "Status", "status": "Failure", "reason": "NotFound"}
{"status": "error", "message": "no such order"} ¦ {"msg": "参数错误"} ¦ {"message": "操作失败"}
{"result": "失败"} ¦ {"status": "支付失败"} ¦ {"reason": "参数错误"} ¦ {"detail": "参数错误"}
I encountered an error while trying to use the tool. This was the error: no such key.
Module not found: Error: Can't resolve './a' ¦ Type error: Property 'a' does not exist on type 'B'.
a.c:(.text+0x1f): undefined reference to `f' ¦ Undefined symbols for architecture arm64: "_f"
Code execution failed at line 'import os' due to: Import of os is not allowed.
apply_patch verification failed: Failed to find lines ¦ # 1 SEARCH/REPLACE block failed to match!
予約の取得に失敗しました: 見つかりません ¦ 执行状态：失败 ¦ No se pudo completar la operación: sin saldo
Não foi possível concluir ¦ Impossible de joindre le service ¦ Échec de la connexion ¦ Impossibile aprire
ls: impossible d'accéder à 'a': Aucun fichier ou dossier de ce nom ¦ cat: a: 没有那个文件或目录
{"结果": "支付失败"} ¦ {"状态": "失败"} ¦ {"消息": "查询失败"}
"""


@pytest.mark.parametrize("text", re.split(r"\n| ¦ ", ERRORS.strip()))
def test_what_programs_say_of_a_failure_is_told(text: str):
    is_data = text.startswith("{")
    outcome, failed = read_outcome(text if is_data else f"{MANY}\n{text}")
    assert failed
    assert is_data or outcome.startswith(" ".join(text.split())[:40])


REFUSALS = """
exec command rejected by user ¦ No changes to apply. The old_string and new_string are identical in file: a.ts
File already exists, cannot create: a.ts ¦ you must read the file before editing it. Use the View tool first
old_string appears multiple times in the file. ¦ new content is the same. No changes made.
file /r/a.go has been modified since it was last read (mod time: 10:00) ¦ EXECUTION TIMED OUT
Google search Timeout, return None, Please try again later. ¦ relation "nope" does not exist
Unable to locate credentials. You can configure credentials by running "aws configure".
(AuthorizationFailed) The client 'x' does not have authorization ¦ Unknown tool name: 'get_weathr'.
Could not find the exact text in a.ts. The old text must match exactly. ¦ [visit] Failed to read page.
文件不存在：/a ¦ 请求超时，请稍后重试 ¦ 权限不足，无法访问该资源 ¦ 无法连接到服务器
"""


@pytest.mark.parametrize("text", re.split(r"\n| ¦ ", REFUSALS.strip()))
def test_an_answer_that_nothing_was_done_is_a_failure(text: str):
    assert read_outcome(text) == (text, True)
    assert not read_outcome(f"{MANY}\n{text}\n{MANY}")[1]


@pytest.mark.parametrize(
    "text",
    ["Made a/; b/ already exists, skipped", "Timeout: 30", "连接不会超时", "12 users, 3 already invited"],
)
def test_an_answer_that_something_was_done_is_none(text: str):
    assert read_outcome(text) == (text, False)


def test_a_page_with_which_a_server_refuses_is_a_failure():
    page = "<html>\n<head><title>{}</title></head>\n<body>nginx</body></html>"
    assert read_outcome(page.format("502 Bad Gateway")) == ("502 Bad Gateway | nginx", True)
    assert not read_outcome(page.format("502 ways to cook"))[1]


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        (
            "To a:b.git\n ! [rejected]  main -> main (fetch first)\nerror: failed to push some refs to 'a:b'",
            "! [rejected] main -> main (fetch first)",
        ),
        (
            "Auto-merging a\nCONFLICT (content): Merge conflict in a.py\nAuto-merging b\n"
            "CONFLICT (content): Merge conflict in b.py\nAutomatic merge failed; fix conflicts.",
            "CONFLICT (content): Merge conflict in b.py: a.py",
        ),
        ("ok: a.c:2: main: Assertion `x > 0' failed.\nAborted", "ok: a.c:2: main: Assertion `x > 0' failed."),
        (
            "--- FAIL: TestF (0.00s)\n    a_test.go:3: F() = 1, want 2\nFAIL\nFAIL\ta/b\t0.1s",
            "--- FAIL: TestF (0.00s) a_test.go:3: F() = 1, want 2",
        ),
        (
            "E   ModuleNotFoundError: No module named 'x'\nERROR test_b.py\n==== 1 error in 0.30s ====",
            "1 error in 0.30s: E ModuleNotFoundError: No module named 'x'",
        ),
        ("ERROR: test_b (t.T.test_b)\nKeyError: 'k'\nFAILED (errors=1)", "FAILED (errors=1): test_b"),
        (
            "50% tests passed, 1 tests failed out of 2\n\nThe following tests FAILED:\n\t  2 - bad (Failed)",
            "50% tests passed, 1 tests failed out of 2: bad",
        ),
        (
            "  ✘  2 b.spec.ts:5:1 › pays (5.1s)\n  1 failed\n  2 passed (8.0s)",
            "1 failed, 2 passed (8.0s): b.spec.ts:5:1 › pays",
        ),
        (
            "/r/a.ts\n  3:7  error  'x' is never used  no-unused-vars\n\n✖ 1 problem (1 error, 0 warnings)",
            "✖ 1 problem (1 error, 0 warnings): 'x' is never used",
        ),
        (
            "F401 [*] `os` imported but unused\n --> a.py:2:16\n\nFound 1 error.",
            "Found 1 error.: F401 [*] `os` imported but unused",
        ),
        (
            "1 validation error for get_weather\ncity\n  Field required [type=missing]\n\nFix the errors.",
            "1 validation error for get_weather city Field required [type=missing]",
        ),
        (
            "It has errors\n\nERRORS:\n- E999 SyntaxError: unmatched ')'\n\nAll have NOT been applied.",
            "- E999 SyntaxError: unmatched ')' (NOT applied)",
        ),
        (
            "      x.c:3:10: fatal error: Python.h: missing\n  ERROR: Failed building wheel for x",
            "x.c:3:10: fatal error: Python.h: missing",
        ),
        (
            "ERROR: Cannot install a and b: they conflict\nERROR: ResolutionImpossible: for help visit x",
            "ERROR: Cannot install a and b: they conflict",
        ),
        ("error:\n\n```\nTimeout: the code took too long.\n```", "error: Timeout: the code took too long."),
        (
            "An error occurred while running the tool. Error: 503",
            "An error occurred while running the tool. Error: 503",
        ),
    ],
)
def test_of_a_failure_is_told_what_it_was(text: str, outcome: str):
    assert read_outcome(text) == (outcome, True)


NO_ERRORS = """
Fatal error handling was improved in v2 ¦ Unhandled exception handlers are listed below ¦ Error handling
Error messages are translated ¦ Error codes are listed in docs/codes.md ¦ Killed 3 processes
Aborted 2 runs, 5 kept ¦ warning: cannot find entry symbol 'main' ¦ make: *** done ***
-rw-r--r-- 1 a a 12 Mar 2 08:32 error.h ¦ 12 errors-only ¦ 3 errors/ ¦ 12 passed, see 3 errors.txt
12 passed, kept in 2 failed-runs ¦ 2 errors.txt ¦ Destroy complete! Resources: 3 destroyed.
Successfully built 1a2b3c ¦ 错误处理.md ¦ 未失败！ ¦ {"title": "错误处理指南"} ¦ {"result": "没有错误"}
{"message": "无错误"} ¦ {"error": ""} ¦ {'error': ''} ¦ {'error': None} ¦ {"error": false}
{'error': False} ¦ {"errors": {}} ¦ Error rate: 0.2 % ¦ Error count: 3 ¦ Checks failed: none ¦ Tests failed: 0
HTTP 2 is in use ¦ Latency error: 3 ms ¦ エラーが発生しませんでした。 ¦ 오류가 발생하지 않았습니다.
没有发生错误。 ¦ エラーが発生していません。 ¦ エラーが発生した場合は再試行 ¦ 오류가 발생하면 다시 시도
Standard error: see below ¦ Expected error: no key ¦ Validation error: 0.12 ¦ 3 × 4 cells
ERROR: Pipe to stdout was broken ¦ Title: Error: lock timeout ¦ Failing: 0 ¦ Tests failed: no
[{"id": 7, "status": "failed"}] ¦ The user declined 3 offers
如果发生错误，请重试 ¦ 429 Too Many Requests is sent to clients
"""


@pytest.mark.parametrize(
    "status", ["404 Not Found", "429 Too Many Requests", "503 Service Unavailable: try later"]
)
def test_the_status_that_a_server_answers_with_is_a_failure(status: str):
    assert read_outcome(f"{status}\nnginx/1.27") == (status, True)
    assert not read_outcome(f"Statuses:\n{status}\n{MANY}")[1]


@pytest.mark.parametrize("text", re.split(r"\n| ¦ ", NO_ERRORS.strip()))
def test_what_reads_like_a_failure_is_none(text: str):
    assert not read_outcome(text if text.startswith(("{", "[{")) else f"{MANY}\n{text}")[1]


@pytest.mark.parametrize("text", ["Destroy complete! Resources: 3 destroyed.", "Successfully built 1a2b3c"])
def test_what_was_brought_to_its_end_is_told(text: str):
    assert read_outcome(f"{MANY}\n{text}\n{MANY}") == (text, False)


def test_what_maven_says_below_the_error_is_not_told():
    said = """[ERROR] Failed to execute goal a:b:test (default) on project c: There are test failures.
[ERROR] -> [Help 1]
[ERROR]
[ERROR] To see the full stack trace of the errors, re-run Maven with the -e switch.
[ERROR] Re-run Maven using the -X switch to enable full debug logging.
[ERROR]
[ERROR] For more information about the errors, please read the following articles:
[ERROR] [Help 1] http://cwiki.apache.org/confluence/display/MAVEN/MojoFailureException
[ERROR] After correcting the problems, you can resume the build with the command"""
    for end in range(2, 10):
        told = "\n".join(said.split("\n")[:end])
        assert read_outcome(f"{MANY}\n{told}") == (said.split("\n")[0], True)


def test_an_error_alone_on_its_line_stands_above_what_it_is():
    for word in ("error", "Error", "ERROR"):
        assert read_outcome(f"{word}:\nno such branch") == (f"{word}: no such branch", True)


def test_kotlin_says_why_above_what_gradle_says():
    why = "e: file:///src/Main.kt:3:5 Unresolved reference: foo"
    said = f"{MANY}\n{why}\n\nExecution failed for task ':compileKotlin'.\n\nBUILD FAILED in 3s"
    assert read_outcome(said) == (why, True)


def test_what_npm_says_first_is_told_and_not_where_its_log_is():
    said = "npm error code E404\nnpm error 404 Not Found - GET /foo\n"
    said += "npm error A complete log of this run can be found in: /root/.npm/_logs/2025.log"
    for name in ("npm error", "npm ERR!"):  # as it was called before version 10
        outcome, failed = read_outcome(f"{MANY}\n{said.replace('npm error', name)}")
        assert outcome.startswith(f"{name} code E404 {name} 404 Not Found - GET /foo")
        assert failed


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ("{n}\t2026-03-02T10:00:{n} {level} {what}", "15 2026-03-02T10:00:15 FATAL out"),
        ("[2026-03-02 10:00:{n}] [{level}] {what}", "2026-03-02 10:00:15 CRITICAL out"),
        ("[10:00:{n}] {level} {what}", "10:00:15 ERROR out"),
        ("Mar  2 10:00:{n} host app[7]: {level}: {what}", "Mar 2 10:00:15 host app 7 : ERROR: out"),
        ("ts=10:00:{n} level={level} msg={what}", "ts=10:00:15 level=fatal msg=out"),
        ("level={level} ts=10:00:{n} msg={what}", "level=critical ts=10:00:15 msg=out"),
        ("2026-03-02 10:00:{n} {level} a lamp, {what}", "2026-03-02 10:00:15 ERROR a lamp, out"),
        (
            "logs/a.log:{n}: 2026-03-02T10:00:01Z {level} {what}",
            "logs/a.log:15: 2026-03-02T10:00:01Z ERROR out",
        ),
        ('{{"level": "{level}", "msg": "{what}"}}', "level: error, msg: out"),
        ("time=10:00 level={level} msg={what}", "time=10:00 level=error msg=out"),
    ],
)
@pytest.mark.parametrize("is_read", [False, True])
def test_of_a_log_its_last_error_is_told_and_the_call_did_not_fail(lines: str, told: str, is_read: bool):
    error = next(
        level for level in ("ERROR", "FATAL", "CRITICAL", "fatal", "critical", "error") if level in told
    )
    text = "\n".join(
        lines.format(n=n, level=error if n == 15 else "info", what="out" if n == 15 else "fine")
        for n in range(10, 30)
    )
    assert read_outcome(text, is_read=is_read) == (f"{told} (20 lines)", False)


def test_of_a_command_that_failed_the_last_line_is_told():
    assert read_outcome(MANY, status="3") == ("exit code 3: step 39 (40 lines)", True)


def test_a_reading_command_that_failed_is_told_by_the_error_behind_what_it_shows():
    shown = "raise ValueError('x')\nError: in a comment\na\nb\nc"
    missing = "cat: b.py: No such file or directory"
    assert read_outcome(f"{shown}\n{missing}", is_read=True, status="1") == (f"exit code 1: {missing}", True)
    assert read_outcome(f"{shown}\n{missing}", is_read=True, status="0")[1] is False
    assert read_outcome(shown, is_read=True, status="1")[1] is False  # a search behind it found nothing


SCREEN = """$ cd /app
root@a1:/app# make
m.c:3:12: error: x undeclared
root@a1:/app# cat > t.sh
> make
> EOF
root@a1:/app# ls
t.sh
root@a1:/app# """


@pytest.mark.parametrize(
    ("command", "outcome", "failed"),
    [
        ("ls", "t.sh", False),
        ("\nls\n", "t.sh", False),
        ("pwd", "m.c:3:12: error: x undeclared", True),
        ("cat > t.sh\nmake\nEOF", "root@a1:/app# ls | t.sh", False),
    ],
)
def test_on_a_screen_what_stands_above_a_command_is_not_its_outcome(command: str, outcome: str, failed: bool):
    assert read_outcome(SCREEN, command=command) == (outcome, failed)


@pytest.mark.parametrize("last", ["t.sh", "t.sh | rootfs.img", "t.sh | c#"])
def test_a_screen_on_which_no_prompt_waits_is_told_to_its_end(last: str):
    screen = SCREEN.removesuffix("t.sh\nroot@a1:/app# ") + last.replace(" | ", "\n")
    assert read_outcome(screen, command="ls") == (last, False)


@pytest.mark.parametrize(
    ("command", "status", "outcome"),
    [
        ("grep -n 'def load' a.py", "1", "no match"),
        ('cd src && git grep "a|b; c"', "1", "no match"),
        ("find . -name '*.py' | xargs -0 grep -l \"it's\"", "123", "no match"),
        ("python t.py 2>&1 | rg -i error", "1", "no match"),
        ("grep -n x a.py", "2", "exit code 2"),
        ("grep -q x a.py; false", "1", "exit code 1"),
        ("python grep.py", "1", "exit code 1"),
        ("", "1", "exit code 1"),
    ],
)
def test_a_search_that_finds_nothing_did_not_fail(command: str, status: str, outcome: str):
    assert read_outcome("", command=command, status=status) == (outcome, outcome != "no match")


@pytest.mark.parametrize(
    ("command", "status", "failed"),
    [
        ("diff a.txt b.txt", "1", False),
        ("make && git diff --exit-code", "1", False),
        ("cmp a b", "1", False),
        ("diff a.txt b.txt", "2", True),
        ("diff a b && make", "1", True),
        ("./difference a b", "1", True),
    ],
)
def test_a_comparison_that_finds_a_difference_did_not_fail(command: str, status: str, failed: bool):
    outcome = read_outcome("1c1\n< old\n---\n> new", command=command, status=status)
    assert outcome == ("exit code 1: "[: 13 * failed].replace("1", status) + "1c1 | < old | > new", failed)


def test_a_search_that_says_why_it_found_nothing_failed():
    assert read_outcome("grep: a.py: No such file or directory", command="grep x a.py", status="1")[1]


def test_one_match_of_several_is_not_told_as_the_only_one():
    found = "\n".join(f"django/contrib/app_{number}/models_of_{number}.py" for number in range(5))
    ends = "django/contrib/app_0/models_of_0.py … django/contrib/app_4/models_of_4.py (5 lines)"
    assert read_outcome(found) == (ends, False)
    assert read_outcome(found, is_read=True) == ("django/contrib/app_0/models_of_0.py (5 lines)", False)
    assert read_outcome("\n".join(found.split("\n")[:2]))[0].endswith(
        "_0.py | django/contrib/app_1/models_of_1.py"
    )


CODE = """
# Licensed to nobody in particular.
import os

class Reader(Base):
    def read(self):
        pass

export async function load_all() {
}
class Reader(Base):
    x = 1
"""


def test_of_code_that_was_read_what_it_defines_is_told():
    numbered = "\n".join(f"{number:6}\t{line}" for number, line in enumerate(CODE.split("\n"), 1))
    arrows = numbered.replace("\t", "→")
    for shown in (CODE, numbered, arrows, f"Here's the result of running `cat -n` on /a.py:\n{numbered}"):
        told, failed = read_outcome(shown, is_read=True)
        assert told.startswith("class Reader, export async function load_all (1")
        assert told.endswith(" lines)")
        assert not failed
    inner = "\n".join(
        f"{number}\t    {line}" for number, line in enumerate(["", "def a():", "  x", "def b():"], 40)
    )
    assert read_outcome(inner, is_read=True)[0] == "def a, def b (4 lines)"
    many = "\n".join(f"def function_number_{number}(): ..." for number in range(9))
    told = ", ".join(f"def function_number_{number}" for number in range(3))
    assert read_outcome(many, is_read=True)[0] == f"{told} … (9 lines)"
    prose = "The default\nfunction of it\nis this.\nNo more."
    assert read_outcome(prose, is_read=True)[0] == "The default | function of it | is this. | No more."
    assert "class Reader, " not in read_outcome(CODE)[0]
    assert read_outcome("1\tann\n2\tben\n3\teve\n4\tzoe")[0] == "1 ann | 2 ben | 3 eve | 4 zoe"


def test_of_a_numbered_file_the_first_words_are_told_and_not_the_first_number():
    numbered = "\n".join(
        f"{number:6}\t{line}" for number, line in enumerate(["", "", "alpha", "beta", "gamma"], 9)
    )
    assert read_outcome(numbered, is_read=True)[0] == "alpha | beta | gamma"
    assert read_outcome(numbered * 9, is_read=True)[0].startswith("alpha (")
    # Numbers that are all there is, and those of a table, are what the file holds.
    assert read_outcome("12\n13\n14\nend\n", is_read=True)[0] == "12 | 13 | 14 | end"
    assert read_outcome("7\tann\n3\tben\n9\teve\n8\tzoe", is_read=True)[0].startswith(
        "7\tann".replace("\t", " ")
    )


def test_what_any_page_begins_with_says_nothing_of_it():
    page = f'<!DOCTYPE html>\n<html>\n<meta charset="utf-8"><title>Lamps</title>\n{"<p>more</p>" * 9}'
    assert read_outcome(page)[0] == "Lamps"
    page = f'<html>\n  <link rel="icon" href="a.png">\n  <p>Lamps</p>{LONG}</html>'
    assert read_outcome(page)[0] == "Lamps (24 lines)"


def test_what_an_answer_repeats_of_its_call_is_not_told():
    query = 'lamps for reading, "low"'
    found = {"query": query, "engine": "any", "total": 2, "results": [{"title": "Lamps"}]}
    for text in (json.dumps(found), json.dumps(found, indent=1)):
        told, _ = read_outcome(text, arguments=[query, 2, None, "any", ["x"]])
        assert told == "engine: any, total: 2, results: title: Lamps"
        assert read_outcome(text)[0].startswith("query: lamps")
    # Only what stands there as a value of its own, and nothing of a text.
    longer = json.dumps(f"{query} and more")
    told = read_outcome(f'{{"query": {longer}, "n": 1}}', arguments=[query])[0]
    assert told.endswith("and more, n: 1")
    assert read_outcome(f"lamps: {json.dumps(query)}, two", arguments=[query])[0].startswith("lamps: ")
    assert "low" in read_outcome(f'sent "query": {json.dumps(query)}, all', arguments=[query])[0]
    # What stands far behind it is told as ever.
    found = {"query": query, "items": ["lamp"] * 200, "status": "return requested"}
    told = read_outcome(json.dumps(found), arguments=[query])[0]
    assert told.startswith("status: return requested, items: lamp, lamp")


def test_a_command_above_its_output_is_not_told():
    assert read_outcome("  make all \nbuilt 3 parts", command="\nmake all\n")[0] == "built 3 parts"


def test_what_became_of_an_object_is_told_where_it_stands_last():
    order = {"order_id": "#W1", "address": {"street": "182 Elm Avenue " * 12}, "status": "return requested"}
    outcome, failed = read_outcome(json.dumps(order))
    assert outcome.startswith("status: return requested, order_id: #W1, address: street: 182 Elm")
    assert not failed


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ("build\tpass\t1m3s\nlint\tfail\t30s\ntest\tfail\t3m1s\ndeploy\tpending\t0", "test fail 3m1s"),
        (
            "NAME    READY   STATUS             RESTARTS\nweb-1   1/1     Running            0\n"
            "web-2   0/1     CrashLoopBackOff   12\nweb-3   1/1     Running            0",
            "web-2 0/1 CrashLoopBackOff 12",
        ),
        (
            "ID    IMAGE   STATUS                       NAMES\n"
            "0a1   job:1   Exited (137) 2 minutes ago   job\n"
            "0a2   old:1   Exited (0) 2 minutes ago     old\n0a3   api:2   Up 3 hours                   api",
            "0a1 job:1 Exited (137) 2 minutes ago job",
        ),
        ("| step | state |\n|---|---|\n| load | ok |\n|join|failed|\n| send | ok |", "|join|failed|"),
        ("fail   over\nthe errors   of old\nno   failover   here\nall   fine", "all fine"),
    ],
)
def test_of_a_table_the_row_that_failed_is_told(rows: str, told: str) -> None:
    outcome, failed = read_outcome(f"{rows}\n{' ' * 100}")
    assert f" … {told} (" in outcome
    assert not failed  # the command itself did what it was to


@pytest.mark.parametrize(
    ("said", "failed"),
    [
        ('{"ок": false, "ошибка": "нет на складе"}', True),
        ('{"ок": true, "ошибка": null}', False),
        ('{"успех": false}', True),
        ('{"成功": false, "说明": "超过期限"}', True),
        ('{"成功": true, "错误码": 0}', False),
        ('{"状态": "x", "错误信息": "超过期限"}', True),
        ('{"エラー": "満室です"}', True),
        ('{"نجاح": false}', True),
    ],
)
def test_data_in_other_languages_tell_of_failures_too(said: str, failed: bool):
    assert read_outcome(said)[1] is failed
