//! A running call as one line of the screen.

use std::time::{Duration, Instant};

use console::truncate_str;
use shikiri_model::host::sanitize_line;

use crate::output::{Output, Style};
use crate::table::{TableColumn, TableView, fit_table};

const SPINNER: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];
/// How long each picture of the spinner is shown.
pub(super) const TICK: Duration = Duration::from_millis(120);
/// The width of a bar, where there is room for one.
const BAR: usize = 20;
const SHORT_BAR: usize = 8;

#[derive(Clone, Debug)]
pub(super) struct Row {
    /// Server and tool.
    pub(super) name: String,
    pub(super) began: Instant,
    pub(super) progress: Option<f64>,
    pub(super) total: Option<f64>,
    pub(super) message: String,
}

impl Row {
    pub(super) fn new(name: &str) -> Self {
        let began = Instant::now();
        let name = sanitize_line(name);
        Self { name, began, progress: None, total: None, message: String::new() }
    }

    /// At most `width` columns; wide characters count as two.
    pub(super) fn line(&self, width: usize, output: Output) -> String {
        let elapsed = self.began.elapsed();
        self.line_after(elapsed, width, output)
    }

    fn line_after(&self, elapsed: Duration, width: usize, output: Output) -> String {
        let picture = (elapsed.as_millis() / TICK.as_millis()) as usize % SPINNER.len();
        let name_room = (width / 3).max(8);
        let name = truncate_str(&self.name, name_room, "…");
        let mut parts = vec![SPINNER[picture].to_owned(), name.into_owned()];
        match (self.progress, self.total.filter(|total| *total > 0.0)) {
            (Some(done), Some(total)) => {
                if let Some(length) = bar_length(width) {
                    parts.push(bar(done / total, length, output));
                }
                parts.push(format!("{done}/{total}"));
            }
            (Some(done), None) => parts.push(done.to_string()),
            (None, _) => {}
        }
        parts.push(output.paint(Style::Dim, &clock(elapsed)));
        parts.push(self.message.clone());
        let line = parts.join(" ");
        truncate_str(line.trim_end(), width, "…").into_owned()
    }
}

fn bar_length(width: usize) -> Option<usize> {
    match width {
        0..=39 => None,
        40..=69 => Some(SHORT_BAR),
        _ => Some(BAR),
    }
}

fn bar(part: f64, length: usize, output: Output) -> String {
    let filled = (part.clamp(0.0, 1.0) * length as f64).round() as usize;
    let (done, rest) = ("█".repeat(filled), "░".repeat(length - filled));
    format!("{}{}", output.paint(Style::Good, &done), output.paint(Style::Dim, &rest))
}

fn clock(elapsed: Duration) -> String {
    let seconds = elapsed.as_secs();
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

/// Columns of texts under their names, in lines of at most `width`.
pub(crate) fn columns(head: &[&'static str], rows: &[Vec<String>], width: usize) -> Vec<String> {
    let view = TableView { width: Some(width), time: None, output: Output::plain() };
    fit_table(&TableColumn::texts(head), rows, &view).lines
}

#[cfg(test)]
mod tests {
    use console::measure_text_width;

    use super::*;

    fn row() -> Row {
        Row {
            progress: Some(50.0),
            total: Some(100.0),
            message: "価格を確認しています".to_owned(),
            ..Row::new("travel travel_agent")
        }
    }

    #[test]
    fn a_row_tells_how_far_a_call_is() {
        let shown = row().line_after(Duration::from_secs(72), 100, Output::plain());
        assert_eq!(
            shown,
            "⠋ travel travel_agent ██████████░░░░░░░░░░ 50/100 1:12 価格を確認しています"
        );
        let uncounted = Row { total: None, ..row() };
        let shown = uncounted.line_after(Duration::ZERO, 100, Output::plain());
        assert_eq!(shown, "⠋ travel travel_agent 50 0:00 価格を確認しています");
    }

    #[test]
    fn a_row_never_takes_more_than_the_width() {
        for width in 1..120 {
            let shown = row().line_after(Duration::from_secs(1), width, Output::plain());
            assert!(measure_text_width(&shown) <= width, "{width}: {shown}");
        }
    }

    #[test]
    fn progress_beyond_its_total_fills_the_bar() {
        assert_eq!(bar(7.0, 4, Output::plain()), "████");
        assert_eq!(bar(-1.0, 4, Output::plain()), "░░░░");
        assert_eq!(bar(f64::NAN, 4, Output::plain()), "░░░░");
    }

    #[test]
    fn columns_fit_and_stand_under_their_names() {
        let rows = vec![
            vec!["旅".to_owned(), "a long description that has no room".to_owned()],
            vec!["ab".to_owned(), "short".to_owned()],
        ];
        let lines = columns(&["tool", "does"], &rows, 20);
        assert_eq!(lines, ["TOOL  DOES", "旅    a long descri…", "ab    short"]);
        assert!(columns(&["a", "b"], &rows, 1).len() == 3, "nothing is too narrow to be told");
    }
}
