//! The last rows of the terminal, in which bars are drawn. Each bar has its own row. Former
//! drawings are found again after a narrower terminal has wrapped their lines.

use std::fmt;
use std::io::{self, Write as _};
use std::sync::{Mutex, MutexGuard, PoisonError};

use console::{Term, measure_text_width};
use indicatif::TermLike;

use super::screen::width;

#[derive(Default)]
pub(super) struct Sheet {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The width of each drawn line.
    drawn: Vec<usize>,
    /// Output for the next flush.
    out: String,
}

impl fmt::Debug for Sheet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sheet")
    }
}

impl Sheet {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn write(&mut self, line: &str) {
        // Lines are padded with spaces up to the right edge. A line break starts the next row, so
        // that the terminal does not join lines when it becomes wider.
        if line.trim().is_empty() {
            return;
        }
        if !self.drawn.is_empty() {
            self.out.push_str("\r\n");
        }
        self.out.push_str(line);
        self.drawn.push(measure_text_width(line));
    }

    /// Removes all drawn rows, on a terminal of this width.
    fn erase(&mut self, width: usize) {
        let rows = self.drawn.iter().map(|line| line.div_ceil(width.max(1)).max(1)).sum::<usize>();
        // Line by line: some terminals would otherwise keep every erased drawing in their
        // scrollback.
        if rows > 0 {
            self.out.push_str("\r\u{1b}[2K");
            self.out.push_str(&"\u{1b}[1A\u{1b}[2K".repeat(rows - 1));
        }
        self.drawn.clear();
    }
}

impl TermLike for Sheet {
    fn width(&self) -> u16 {
        u16::try_from(width()).unwrap_or(u16::MAX)
    }

    fn height(&self) -> u16 {
        Term::stderr().size().0
    }

    // Rows are counted here, because the drawing code does not know how a new width wraps them.
    fn move_cursor_up(&self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn move_cursor_down(&self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn move_cursor_right(&self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn move_cursor_left(&self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn write_line(&self, line: &str) -> io::Result<()> {
        self.write_str(line)
    }

    fn write_str(&self, line: &str) -> io::Result<()> {
        self.lock().write(line);
        Ok(())
    }

    /// The first call before a drawing removes all lines.
    fn clear_line(&self) -> io::Result<()> {
        let width = width();
        self.lock().erase(width);
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        let out = std::mem::take(&mut self.lock().out);
        let mut stderr = io::stderr().lock();
        stderr.write_all(out.as_bytes())?;
        stderr.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_a_narrower_terminal_has_broken_are_all_taken_away() {
        let mut state = State::default();
        for line in ["日本語のバー", "    ", "second", " "] {
            state.write(line);
        }
        assert_eq!(std::mem::take(&mut state.out), "日本語のバー\r\nsecond");
        state.erase(5);
        let erased = format!("\r\u{1b}[2K{}", "\u{1b}[1A\u{1b}[2K".repeat(4));
        assert_eq!(std::mem::take(&mut state.out), erased, "three rows and two");
        state.erase(5);
        assert_eq!(state.out, "", "nothing is there any more");
    }
}
