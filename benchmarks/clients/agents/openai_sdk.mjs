// An agent of OpenAI's SDK for JavaScript: chat completions or responses, streamed.
import OpenAI from 'openai'
import { api, baseURL, mostTurns, request, schemas, tools } from './work.mjs'

const client = new OpenAI({ baseURL })
const model = 'gpt-5'

async function chat() {
  const offered = schemas.map((one) => ({ type: 'function', function: one }))
  const messages = [{ role: 'system', content: 'You read logs.' }, { role: 'user', content: request }]
  for (let turn = 0; turn < mostTurns; turn++) {
    const stream = client.chat.completions.stream({ model, messages, tools: offered })
    const { message } = (await stream.finalChatCompletion()).choices[0]
    messages.push(message)
    if (!message.tool_calls?.length) return message.content
    for (const call of message.tool_calls) {
      const said = tools[call.function.name](JSON.parse(call.function.arguments))
      messages.push({ role: 'tool', tool_call_id: call.id, content: said })
    }
  }
}

async function responses() {
  const offered = schemas.map((one) => ({ type: 'function', strict: false, ...one }))
  const input = [{ role: 'user', content: request }]
  for (let turn = 0; turn < mostTurns; turn++) {
    const stream = await client.responses.create({
      model,
      input,
      tools: offered,
      instructions: 'You read logs.',
      store: false,
      include: ['reasoning.encrypted_content'],
      stream: true,
    })
    let output
    for await (const event of stream) {
      if (event.type === 'response.completed') ({ output } = event.response)
    }
    input.push(...output)
    const calls = output.filter((item) => item.type === 'function_call')
    if (!calls.length) return output.at(-1).content[0].text
    for (const call of calls) {
      const said = tools[call.name](JSON.parse(call.arguments))
      input.push({ type: 'function_call_output', call_id: call.call_id, output: said })
    }
  }
}

console.log(await (api === 'chat' ? chat() : responses()))
