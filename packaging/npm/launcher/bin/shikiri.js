#!/usr/bin/env node
// Starts the program of this machine's platform package, and is then only in between: input, output,
// signals and the exit code are the program's.
"use strict";

const { spawn } = require("node:child_process");
const { constants } = require("node:os");

const platform = `@shikiri/${process.platform}-${process.arch}`;
let program;
try {
  program = require.resolve(`${platform}/bin/shikiri`);
} catch {
  console.error(`shikiri: there is no program for ${process.platform}-${process.arch} here.`);
  console.error(`The package ${platform} is missing. It comes with shikiri where it exists, unless`);
  console.error("npm was told to leave out optional packages. Elsewhere, build from source.");
  process.exit(1);
}

const child = spawn(program, process.argv.slice(2), { stdio: "inherit" });
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"]) {
  process.on(signal, () => child.kill(signal));
}
child.on("error", (error) => {
  console.error(`shikiri: cannot start ${program}: ${error.message}`);
  process.exit(1);
});
child.on("exit", (code, signal) => process.exit(code ?? 128 + constants.signals[signal]));
