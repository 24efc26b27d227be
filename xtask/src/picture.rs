//! `cargo xtask picture`: plays the demo in a terminal and draws what it printed as the README's
//! picture. The file needs no fonts and no scripts: lines appear one after another by CSS, and all
//! stand there at once for readers who want no motion and for programs that know no animation.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::cargo::{target_folder, workspace_root};

const PICTURE: &str = "docs/pictures/demo.svg";
/// Columns that are drawn; a longer line is cut.
const COLUMNS: usize = 92;
const CHARACTER: f64 = 7.8;
const LINE: f64 = 18.0;
const MARGIN: f64 = 18.0;
/// The bar with the three dots.
const BAR: f64 = 28.0;
/// Seconds between two lines, and before the line after a kill or a heading.
const PACE: f64 = 0.22;
const PAUSE: f64 = 0.9;

#[derive(Args)]
pub(crate) struct Arguments {
    /// The program that plays the demo [target/release/shikiri]
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let built = || target_folder().join("release/shikiri");
    let program = arguments.program.clone().unwrap_or_else(built);
    let printed = play(&program)?;
    let lines: Vec<_> = printed.lines().map(spans).collect();
    let path = workspace_root().join(PICTURE);
    fs::create_dir_all(path.parent().context("no folder")?)?;
    fs::write(&path, draw(&chosen(lines)))?;
    println!("picture: {}", path.display());
    Ok(())
}

/// What the demo prints at a terminal, with its colours.
fn play(program: &std::path::Path) -> Result<String> {
    let command = format!("'{}' demo --once --fast", program.display());
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--command", &command, "/dev/null"]);
    let played = script.env("TERM", "xterm-256color").output().context("script(1) is needed")?;
    ensure!(played.status.success(), "the demo failed: build it, or name it with --program");
    Ok(String::from_utf8_lossy(&played.stdout).replace('\r', ""))
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Look {
    #[default]
    Plain,
    Bold,
    Dim,
    Good,
    Bad,
}

type Line = Vec<(Look, String)>;

/// A line's pieces by their colours.
fn spans(line: &str) -> Line {
    let (mut spans, mut look) = (Line::new(), Look::Plain);
    for (at, part) in line.split("\x1b[").enumerate() {
        let mut text = part;
        if at > 0 {
            let Some((codes, rest)) = part.split_once('m') else { continue };
            look = codes.split(';').fold(look, |look, code| match code {
                "0" | "" => Look::Plain,
                "1" if look == Look::Plain => Look::Bold,
                "2" => Look::Dim,
                "31" => Look::Bad,
                "32" => Look::Good,
                _ => look,
            });
            text = rest;
        }
        if !text.is_empty() {
            spans.push((look, text.to_owned()));
        }
    }
    spans
}

fn plain(line: &Line) -> String {
    line.iter().map(|(_, text)| text.as_str()).collect()
}

/// The first part as it was, the headings of the others, and the figures at the end.
fn chosen(lines: Vec<Line>) -> Vec<Line> {
    let (mut kept, mut is_shown) = (Vec::new(), true);
    for line in lines {
        let text = plain(&line);
        let is_heading = text.starts_with(|first: char| first.is_ascii_digit());
        if is_heading || text == "In the end" {
            is_shown = !is_heading || text.starts_with("1.");
            if !is_shown || text == "In the end" {
                kept.push(Line::new());
                kept.push(line);
                continue;
            }
        }
        if is_shown {
            kept.push(line);
        }
    }
    // The empty lines that the parts began with.
    kept.dedup_by(|next, before| next.is_empty() && before.is_empty());
    while kept.last().is_some_and(Vec::is_empty) {
        kept.pop();
    }
    kept
}

fn draw(lines: &[Line]) -> String {
    #[expect(clippy::cast_precision_loss, reason = "some dozens")]
    let (columns, rows) = (COLUMNS as f64, lines.len() as f64);
    let width = 2.0 * MARGIN + columns * CHARACTER;
    let height = BAR + 2.0 * MARGIN + rows * LINE;
    let mut picture = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" \
         role=\"img\" aria-label=\"shikiri demo\">\n<!-- Made by `cargo xtask picture`. -->\n{STYLE}\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#16181d\"/>\n"
    );
    for (at, colour) in [(18, "#f2655a"), (36, "#f0b73f"), (54, "#5dc257")] {
        let _ = writeln!(picture, "<circle cx=\"{at}\" cy=\"15\" r=\"5\" fill=\"{colour}\"/>");
    }
    let (mut top, mut delay) = (BAR + MARGIN, 0.5);
    for line in lines {
        if !line.is_empty() {
            delay += if matters(line) { PAUSE } else { PACE };
            text(&mut picture, line, top, delay);
        }
        top += LINE;
    }
    picture.push_str("</svg>\n");
    picture
}

const STYLE: &str = "<style>
text { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace; \
fill: #d7dae0; white-space: pre; }
.Bold { font-weight: bold; fill: #ffffff; } .Dim { fill: #8b93a1; }
.Good { fill: #6fcf7a; } .Bad { fill: #ff7b72; font-weight: bold; }
@media (prefers-reduced-motion: no-preference) {
  text { animation: appear 0.15s both; } @keyframes appear { from { opacity: 0; } }
}
</style>
";

/// Whether a reader needs a moment: a heading, or a server that dies.
fn matters(line: &Line) -> bool {
    line.iter().any(|(look, _)| matches!(look, Look::Bold | Look::Bad))
}

fn text(picture: &mut String, line: &Line, top: f64, delay: f64) {
    let mut room = COLUMNS;
    let _ = write!(
        picture,
        "<text x=\"{MARGIN}\" y=\"{top:.0}\" xml:space=\"preserve\" style=\"animation-delay:{delay:.2}s\">"
    );
    for (look, piece) in line {
        let shown: String = piece.chars().take(room).collect();
        room -= shown.chars().count();
        let shown = shown.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let _ = write!(picture, "<tspan class=\"{look:?}\">{shown}</tspan>");
    }
    picture.push_str("</text>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_become_classes_and_parts_are_chosen() {
        let printed = "A demo\n\n\x1b[1m1. First\x1b[0m\n   \x1b[31m\x1b[1mkill -9\x1b[0m <it>\n\n\
                       \x1b[1m2. Second\x1b[0m\n   left out\n\n\x1b[1mIn the end\x1b[0m\n   all";
        let lines = chosen(printed.lines().map(spans).collect());
        let texts: Vec<_> = lines.iter().map(plain).collect();
        assert_eq!(
            texts,
            [
                "A demo",
                "",
                "1. First",
                "   kill -9 <it>",
                "",
                "2. Second",
                "",
                "In the end",
                "   all"
            ]
        );
        let picture = draw(&lines);
        assert!(picture.contains("<tspan class=\"Bad\">kill -9</tspan>"), "{picture}");
        assert!(picture.contains(" &lt;it&gt;"), "{picture}");
        assert!(!picture.contains("left out") && !picture.contains("href"), "{picture}");
    }
}
