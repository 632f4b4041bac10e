// Tools of an agent, and what it is asked: by its command line, a base URL and nothing else is told.
import { execSync } from 'node:child_process'
import { readFileSync } from 'node:fs'

export const [baseURL, request, api] = process.argv.slice(2)
export const mostTurns = 80

export const tools = {
  read_file: ({ path }) => readFileSync(path, 'utf-8'),
  run_command: ({ command }) => execSync(command, { encoding: 'utf-8' }),
}
const parameters = (key) => ({ type: 'object', properties: { [key]: { type: 'string' } }, required: [key] })
export const schemas = [
  { name: 'read_file', description: 'Read a file.', parameters: parameters('path') },
  { name: 'run_command', description: 'Run a command in a shell.', parameters: parameters('command') },
]
