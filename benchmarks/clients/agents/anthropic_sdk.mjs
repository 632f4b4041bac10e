// An agent of Anthropic's SDK for JavaScript: messages, streamed.
import Anthropic from '@anthropic-ai/sdk'
import { baseURL, mostTurns, request, schemas, tools } from './work.mjs'

const client = new Anthropic({ baseURL })
const offered = schemas.map(({ parameters, ...one }) => ({ ...one, input_schema: parameters }))
const messages = [{ role: 'user', content: request }]
for (let turn = 0; turn < mostTurns; turn++) {
  const stream = client.messages.stream({
    model: 'claude-sonnet-4-5',
    max_tokens: 1000,
    system: 'You read logs.',
    messages,
    tools: offered,
  })
  const { role, content, stop_reason } = await stream.finalMessage()
  messages.push({ role, content })
  if (stop_reason !== 'tool_use') {
    console.log(content.map((block) => block.text ?? '').join(''))
    break
  }
  const results = content
    .filter((block) => block.type === 'tool_use')
    .map(({ id, name, input }) => ({ type: 'tool_result', tool_use_id: id, content: tools[name](input) }))
  messages.push({ role: 'user', content: results })
}
