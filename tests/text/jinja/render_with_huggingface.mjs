// SPDX-License-Identifier: Apache-2.0
// The answers of npm's @huggingface/jinja to the lines that render_template reads:
//   node render_with_huggingface.mjs FOLDER_WITH_NODE_MODULES < requests
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';
import { resolve } from 'node:path';

const { Template } = createRequire(resolve(process.argv[2], 'index.js'))('@huggingface/jinja');
for await (const line of createInterface({ input: process.stdin })) {
  const { template, variables } = JSON.parse(line);
  let answer;
  try {
    answer = { text: new Template(template).render(variables) };
  } catch (error) {
    answer = { error: String(error) };
  }
  console.log(JSON.stringify(answer));
}
