// Makes JavaScript of one TypeScript program, and ends. What it is given is only read, never run.
//
// Types become blanks, so that every line and column stays; what cannot be blanked out, such as an enum, is
// rewritten with a source map, which Deno heeds where it tells positions.

const { stripTypeScriptTypes } = process.getBuiltinModule("node:module");
const POSITION = / at \S*:(\d+):(\d+)\s*$/m;

function read(size) {
  const bytes = new Uint8Array(size);
  for (let done = 0; done < size;) {
    const count = Deno.stdin.readSync(bytes.subarray(done));
    if (count === null) Deno.exit(0);
    done += count;
  }
  return new TextDecoder().decode(bytes);
}

function readSize() {
  let digits = "";
  for (;;) {
    const byte = read(1);
    if (byte === "\n") return Number(digits);
    digits += byte;
  }
}

function write(answer) {
  const bytes = new TextEncoder().encode(JSON.stringify(answer) + "\n");
  for (let done = 0; done < bytes.length;) done += Deno.stdout.writeSync(bytes.subarray(done));
}

function refused(error) {
  const text = String(error.message).replace(/^SyntaxError: /, "");
  const [, line, column] = POSITION.exec(text) ?? [];
  const message = text.split("\n")[0].replace(POSITION, "");
  return { message, line: line ? Number(line) : null, column: column ? Number(column) : null };
}

function strip(code) {
  try {
    return { code: stripTypeScriptTypes(code) };
  } catch {
    try {
      return { code: stripTypeScriptTypes(code, { mode: "transform", sourceMap: true }) };
    } catch (error) {
      return refused(error);
    }
  }
}

// The line in front of the code, which the map must skip too.
function shifted({ code }) {
  const [, encoded] = /\/\/# sourceMappingURL=data:application\/json;base64,(\S+)\s*$/.exec(code) ?? [];
  if (encoded === undefined) return code;
  const bytes = Uint8Array.from(atob(encoded), (letter) => letter.charCodeAt(0));
  const map = JSON.parse(new TextDecoder().decode(bytes));
  const text = JSON.stringify({ ...map, sourcesContent: undefined, mappings: ";" + map.mappings });
  const body = code.slice(0, code.lastIndexOf("//# sourceMappingURL="));
  return `${body}//# sourceMappingURL=data:application/json;base64,${btoa(text)}`;
}

strip("let warm: string;");
write({ ready: true });
const made = strip(read(readSize()));
write(made.code === undefined ? made : { code: shifted(made) });
