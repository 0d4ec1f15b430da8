// How the page talks to the program that serves it. The key comes with the address, stays
// in this tab, and is shown to nobody else.

const fromAddress = new URLSearchParams(location.hash.slice(1)).get('key');
if (fromAddress) {
  sessionStorage.setItem('key', fromAddress);
  history.replaceState(null, '', location.pathname);
}

// The address of another run, in a tab that shows this page already, loads nothing by itself.
addEventListener('hashchange', () => { if (location.hash.startsWith('#key=')) location.reload(); });

export const hasKey = () => Boolean(sessionStorage.getItem('key'));

// Unreachable says that the program does not answer.
export class Unreachable extends Error {
  constructor() { super('everynode dashboard does not answer; is it still running?'); }
}

async function request(path, options = {}) {
  let response;
  try {
    response = await fetch(path, { ...options, headers: { ...options.headers, Authorization: 'Bearer ' + sessionStorage.getItem('key') } });
  } catch (e) {
    throw options.signal?.aborted ? e : new Unreachable();
  }
  if (!response.ok) throw new Error((await response.text()).trim() || response.statusText);
  return response;
}

// get asks for a value.
export async function get(path, parameters = {}) {
  return (await request(path + '?' + new URLSearchParams(parameters))).json();
}

// post has something done.
export async function post(path, body) {
  return (await request(path, { method: 'POST', body })).json();
}

// lines reads what comes line by line until the signal ends it.
export async function lines(path, parameters, signal, each, ended = () => {}) {
  const response = await request(path + '?' + new URLSearchParams(parameters), { signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { done, value } = await reader.read().catch((e) => { throw signal.aborted ? e : new Unreachable(); });
    if (done) return ended();
    const parts = (rest + value).split('\n');
    rest = parts.pop();
    for (const line of parts) if (line) each(line);
  }
}
