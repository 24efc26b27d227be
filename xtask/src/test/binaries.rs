//! The test programs: built once with cargo, so that all share one set of features, then run one by
//! one as cargo runs them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::classes::{Level, Selection};
use crate::cargo::{cargo, run as run_command};

/// Takes long to build, has few tests, and needs features that the product does not: only with
/// `--all`.
const BENCHMARKS: &str = "shikiri-bench";

#[derive(Debug, PartialEq)]
pub(super) struct TestBinary {
    package: String,
    /// The folder of its package, which is its tests' working folder.
    folder: PathBuf,
    program: PathBuf,
    is_integration: bool,
}

pub(super) fn build(with_benchmarks: bool) -> Result<Vec<TestBinary>> {
    let mut command = cargo(["test", "--workspace", "--lib", "--bins", "--test", "it"]);
    command.args(["--no-run", "--message-format=json-render-diagnostics"]);
    if !with_benchmarks {
        command.args(["--exclude", BENCHMARKS]);
    }
    println!("$ cargo test --workspace --lib --bins --test it --no-run");
    let output = command.stderr(Stdio::inherit()).output().context("cannot run cargo")?;
    ensure!(output.status.success(), "cargo test --no-run: {}", output.status);
    let messages = String::from_utf8(output.stdout).context("cargo does not write UTF-8")?;
    let binaries: Vec<_> = messages.lines().filter_map(test_binary).collect();
    ensure!(!binaries.is_empty(), "cargo named no test program");
    Ok(binaries)
}

/// The examples in the documentation of crates. They are no test programs of their own, so cargo runs
/// them; the same packages as in `build`, so that nothing is built again.
pub(super) fn run_doc_examples(with_benchmarks: bool) -> Result<()> {
    let mut command = cargo(["test", "--workspace", "--doc"]);
    if !with_benchmarks {
        command.args(["--exclude", BENCHMARKS]);
    }
    run_command(&mut command)
}

/// The test program in a line of cargo's messages, if there is one.
fn test_binary(line: &str) -> Option<TestBinary> {
    let message: Value = serde_json::from_str(line).ok()?;
    let is_test = message["profile"]["test"] == true;
    let program = message["executable"].as_str().filter(|_| is_test)?;
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?;
    Some(TestBinary {
        package: folder.file_name()?.to_str()?.to_owned(),
        folder: folder.to_owned(),
        program: program.into(),
        is_integration: message["target"]["kind"][0] == "test",
    })
}

/// Runs those with tests of this level. The next ones run even after a failure.
pub(super) fn run(
    binaries: &[TestBinary],
    is_integration: bool,
    level: Level,
    filter: &[String],
    prepare: impl Fn(&mut Command),
) -> Result<()> {
    let mut failed = Vec::new();
    for binary in binaries.iter().filter(|binary| binary.is_integration == is_integration) {
        let selection = match is_integration {
            true => Selection::of_integration_tests(level, &binary.package),
            false => Some(Selection::default()),
        };
        let Some(selection) = selection else { continue };
        let mut command = Command::new(&binary.program);
        // As cargo does: tests read it to find their workspace.
        command.current_dir(&binary.folder).env("CARGO_MANIFEST_DIR", &binary.folder);
        command.args(selection.arguments()).args(filter);
        prepare(&mut command);
        println!("\n$ {} ({})", binary.package, shown(&command));
        let start = Instant::now();
        let status = command.status().with_context(|| format!("cannot run {}", shown(&command)))?;
        println!("{}: {:.1} s", binary.package, start.elapsed().as_secs_f64());
        if !status.success() {
            failed.push(binary.package.as_str());
        }
    }
    match failed.is_empty() {
        true => Ok(()),
        false => bail!("tests of {}", failed.join(", ")),
    }
}

fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    let arguments = command.get_args().map(|argument| argument.to_string_lossy().into_owned());
    let words = std::iter::once(program.to_string_lossy().into_owned()).chain(arguments);
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_names_the_test_programs() {
        let line = |test: bool, kind: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/w/crates/shikiri-web/Cargo.toml",
                "target":{{"kind":["{kind}"],"name":"it"}},"profile":{{"test":{test}}},
                "executable":"/w/target/debug/deps/it-0"}}"#
            )
        };
        let integration = TestBinary {
            package: "shikiri-web".to_owned(),
            folder: "/w/crates/shikiri-web".into(),
            program: "/w/target/debug/deps/it-0".into(),
            is_integration: true,
        };
        assert_eq!(test_binary(&line(true, "test")), Some(integration));
        assert!(!test_binary(&line(true, "lib")).unwrap().is_integration);
        assert_eq!(test_binary(&line(false, "bin")), None);
        assert_eq!(test_binary(r#"{"reason":"build-finished","success":true}"#), None);
    }
}
