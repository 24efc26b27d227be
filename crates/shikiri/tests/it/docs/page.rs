//! What a page of the documentation asks to be run, and what it says comes out.

/// One block between fences.
struct Block<'a> {
    language: &'a str,
    /// The comment directly above the fence.
    mark: &'a str,
    text: String,
    line: usize,
}

/// A block of shell commands that a reader would run.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) commands: String,
    /// How its last command ends; every other one succeeds.
    pub(super) exit: i32,
    /// Lines that come out in this order, from the block of text that follows.
    pub(super) expected: Vec<String>,
    /// Where the block begins, counted from 1.
    pub(super) line: usize,
}

/// The steps of a page in their order.
///
/// Above a fence may stand `<!-- not run: REASON -->` or `<!-- exit N -->`. A block of `text` that
/// comes next is what the commands print.
pub(super) fn steps(page: &str) -> Result<Vec<Step>, String> {
    let blocks = blocks(page)?;
    let mut steps = Vec::new();
    for (index, block) in blocks.iter().enumerate() {
        if matches!(block.language, "bash" | "shell" | "console" | "") {
            return Err(format!("line {}: write ```sh or ```text", block.line));
        }
        if block.language != "sh" || is_left_out(block)? {
            continue;
        }
        let printed = blocks.get(index + 1).filter(|next| next.language == "text");
        steps.push(Step {
            commands: block.text.clone(),
            exit: exit_code(block)?,
            expected: printed.map(|next| expected_lines(&next.text)).unwrap_or_default(),
            line: block.line,
        });
    }
    Ok(steps)
}

/// The texts of all shell blocks, also of those that are not run.
pub(super) fn shell_blocks(page: &str) -> Result<Vec<String>, String> {
    let blocks = blocks(page)?.into_iter();
    Ok(blocks.filter(|block| block.language == "sh").map(|block| block.text).collect())
}

fn blocks(page: &str) -> Result<Vec<Block<'_>>, String> {
    let mut blocks = Vec::new();
    let mut lines = page.lines().zip(1..);
    let mut mark = "";
    while let Some((content, line)) = lines.next() {
        let Some(language) = content.trim_start().strip_prefix("```") else {
            mark = content.trim();
            continue;
        };
        let indent = content.len() - content.trim_start().len();
        let mut text = String::new();
        loop {
            let (inner, _) = lines.next().ok_or(format!("line {line}: the block has no end"))?;
            if inner.trim_start().starts_with("```") {
                break;
            }
            text.push_str(inner.get(indent..).unwrap_or_default());
            text.push('\n');
        }
        let mark = std::mem::take(&mut mark);
        blocks.push(Block { language: language.trim(), mark, text, line });
    }
    Ok(blocks)
}

fn is_left_out(block: &Block<'_>) -> Result<bool, String> {
    let Some(reason) = block.mark.strip_prefix("<!-- not run:") else { return Ok(false) };
    let reason = reason.strip_suffix("-->").unwrap_or_default().trim();
    if reason.is_empty() {
        return Err(format!("line {}: why is it not run?", block.line));
    }
    Ok(true)
}

fn exit_code(block: &Block<'_>) -> Result<i32, String> {
    let Some(code) = block.mark.strip_prefix("<!-- exit ") else { return Ok(0) };
    let code = code.strip_suffix("-->").and_then(|code| code.trim().parse().ok());
    code.ok_or(format!("line {}: {:?} names no exit code", block.line, block.mark))
}

fn expected_lines(text: &str) -> Vec<String> {
    let lines = text.lines().map(str::trim_end);
    lines.filter(|line| !line.is_empty() && line.trim() != "…").map(str::to_owned).collect()
}

/// The first line that is expected and does not come out in its place.
pub(super) fn missing<'a>(expected: &'a [String], printed: &str) -> Option<&'a str> {
    let mut printed = printed.lines();
    expected.iter().find(|line| !printed.any(|found| fits(line, found))).map(String::as_str)
}

/// Whether a line is as expected, where `…` stands for anything.
fn fits(expected: &str, found: &str) -> bool {
    let (mut parts, mut rest) = (expected.split('…'), found.trim_end());
    let first = parts.next().unwrap_or_default();
    let Some(after) = rest.strip_prefix(first) else { return false };
    rest = after;
    let parts: Vec<_> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[test]
fn marks_and_outputs_belong_to_their_block() {
    let page = "# T\n\n```sh\necho a\n```\n\n```text\na\n…\n```\n\
                <!-- not run: it opens a window -->\n```sh\nopen\n```\n\
                - in a list\n  <!-- exit 3 -->\n  ```sh\n  false\n  ```\n";
    let steps = steps(page).unwrap();
    let seen: Vec<_> = steps.iter().map(|step| (step.commands.as_str(), step.exit)).collect();
    assert_eq!(seen, [("echo a\n", 0), ("false\n", 3)]);
    assert_eq!(steps[0].expected, ["a"]);
    assert!(steps[1].expected.is_empty());
}

#[test]
fn a_page_that_cannot_be_run_is_refused() {
    for page in ["```bash\na\n```", "```\na\n```", "```sh\na", "<!-- not run: -->\n```sh\na\n```"] {
        assert!(steps(page).is_err(), "{page}");
    }
}

#[test]
fn outputs_are_found_in_their_order() {
    let printed = "id run_1 at 12:00\nother\ndone 5\n";
    let lines = |text: &str| expected_lines(text);
    assert_eq!(missing(&lines("id run_… at …\n…\ndone 5"), printed), None);
    assert_eq!(missing(&lines("done 5\nother"), printed), Some("other"));
    assert_eq!(missing(&lines("done"), printed), Some("done"));
    assert_eq!(missing(&lines("id … on …"), printed), Some("id … on …"));
}
