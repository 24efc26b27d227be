//! Line input with editing; for commands also history and completion. While a command is typed, the
//! bars of background calls are above it.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use console::measure_text_width;
use reedline::{
    ColumnarMenu, Completer, CompletionResult, EditCommand, Emacs, ExternalPrinter,
    FileBackedHistory, KeyCode, KeyModifiers, MenuBuilder as _, Prompt, PromptEditMode,
    PromptHistorySearch, Reedline, ReedlineEvent, ReedlineMenu, Signal, Span, Suggestion,
    default_emacs_keybindings,
};

use super::screen::{Keyboard, Screen, width};
use crate::output::{Output, Style, note};

const MENU: &str = "completion";
const HISTORY: usize = 1_000;
/// How often the bars above a prompt are redrawn.
const REDRAW: Duration = Duration::from_millis(250);
/// Lines that the editor prints at a time.
const PRINTED: usize = 256;

/// The result of reading a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Typed {
    Line(String),
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-D, or the terminal is gone.
    End,
    /// A question interrupted the input; this was typed before.
    Broken(String),
}

/// The input line for commands.
#[derive(Clone, Default)]
pub(crate) struct CommandLine {
    /// Completions.
    pub(crate) words: Vec<String>,
    pub(crate) history: Option<PathBuf>,
    /// What was typed before a question came.
    pub(crate) typed: String,
}

impl Screen {
    /// Reads the answer to a question.
    pub(super) async fn read_answer(self: &Arc<Self>, keyboard: &Keyboard, label: &str) -> Typed {
        self.read(keyboard.clone(), label.to_owned(), None).await
    }

    /// Reads a command. A question of a call takes precedence.
    pub(crate) async fn read_command(self: &Arc<Self>, label: &str, line: CommandLine) -> Typed {
        let keyboard = self.next_keyboard().await;
        self.read(keyboard, label.to_owned(), Some(line)).await
    }

    async fn read(
        self: &Arc<Self>,
        keyboard: Keyboard,
        label: String,
        command: Option<CommandLine>,
    ) -> Typed {
        let stop = Arc::new(AtomicBool::new(false));
        // If the caller stops waiting for the line, the editor ends too.
        let _stopped = StopOnDrop(Arc::clone(&stop));
        let screen = Arc::clone(self);
        let reading = tokio::task::spawn_blocking(move || {
            let _keyboard = keyboard;
            screen.start_reading(command.as_ref().map(|_| Arc::clone(&stop)));
            let typed = edit(&screen, label, command, stop);
            screen.stop_reading();
            typed
        });
        reading.await.unwrap_or(Typed::End)
    }
}

struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn edit(
    screen: &Arc<Screen>,
    label: String,
    command: Option<CommandLine>,
    stop: Arc<AtomicBool>,
) -> Typed {
    let is_command = command.is_some();
    let bars = is_command.then(|| Arc::clone(screen));
    let prompt = Line { label: label.clone(), bars, above: Arc::default() };
    let afterwards = Line { label, bars: None, above: Arc::default() };
    let printer = ExternalPrinter::new(PRINTED);
    let sender = printer.sender();
    let mut editor = Reedline::create()
        .with_ansi_colors(Output::stderr().paint(Style::Bold, "x") != "x")
        .with_transient_prompt(Box::new(afterwards))
        .with_break_signal(stop)
        .with_external_printer(printer);
    if let Some(line) = command {
        editor = for_commands(editor, line);
    }
    let repaint = editor.repaint_signal();
    let mut tender = Tender {
        screen: Arc::clone(screen),
        before: (width(), Vec::new()),
        above: Arc::clone(&prompt.above),
        repaint: Box::new(move || repaint.request_repaint()),
        drawn: Instant::now(),
    };
    editor = editor.with_idle_callback(Box::new(move || tender.look(&sender)));
    let read = editor.read_line(&prompt);
    let above = prompt.above.load(Ordering::Relaxed);
    match read {
        Ok(Signal::Success(line)) => Typed::Line(line),
        Ok(Signal::CtrlC) => Typed::Interrupt,
        Ok(Signal::ExternalBreak(typed)) => {
            screen.aside(|| note(&format!("{}\r\u{1b}[J\u{1b}[1A", up(above))));
            Typed::Broken(typed)
        }
        _ => Typed::End,
    }
}

fn for_commands(editor: Reedline, line: CommandLine) -> Reedline {
    let mut keys = default_emacs_keybindings();
    let complete = ReedlineEvent::UntilFound(vec![
        ReedlineEvent::Menu(MENU.to_owned()),
        ReedlineEvent::MenuNext,
    ]);
    keys.add_binding(KeyModifiers::NONE, KeyCode::Tab, complete);
    let clear = ReedlineEvent::Edit(vec![EditCommand::Clear]);
    keys.add_binding(KeyModifiers::CONTROL, KeyCode::Char('c'), clear);
    let menu = ReedlineMenu::EngineCompleter(Box::new(ColumnarMenu::default().with_name(MENU)));
    let mut editor = editor
        .with_edit_mode(Box::new(Emacs::new(keys)))
        .with_completer(Box::new(Words(line.words)))
        .with_menu(menu)
        .with_quick_completions(true)
        .with_partial_completions(true)
        // As in shells, lines that start with a space are not kept.
        .with_history_exclusion_prefix(Some(" ".to_owned()));
    if let Some(history) =
        line.history.and_then(|at| FileBackedHistory::with_file(HISTORY, at).ok())
    {
        editor = editor.with_history(Box::new(history));
    }
    if !line.typed.is_empty() {
        editor.run_edit_commands(&[EditCommand::InsertString(line.typed)]);
    }
    editor
}

/// Work that is done while the user is not typing.
struct Tender {
    screen: Arc<Screen>,
    /// The terminal's former width, and its bars.
    before: (usize, Vec<usize>),
    /// Lines of the prompt above the input line.
    above: Arc<AtomicUsize>,
    /// Requests a redraw of the prompt.
    repaint: Box<dyn Fn() + Send>,
    drawn: Instant,
}

impl Tender {
    fn look(&mut self, sender: &SyncSender<String>) {
        let waiting = self.screen.take_waiting(PRINTED);
        let above = self.above.load(Ordering::Relaxed);
        let broken = self.broken_rows();
        // The editor prints from the input line on; the bars are above it.
        let first = format!("{}\r\u{1b}[J", up(above + broken));
        if !waiting.is_empty() {
            for (at, line) in waiting.into_iter().enumerate() {
                let line = if at == 0 { format!("{first}{line}") } else { line };
                // There is room: the editor has taken everything since the last look.
                let _ = sender.try_send(line);
            }
            self.drawn = Instant::now();
        } else if broken > 0 {
            let _ = sender.try_send(format!("{first}\u{1b}[1A"));
        } else if self.drawn.elapsed() >= REDRAW && (above > 0 || self.has_bars()) {
            self.drawn = Instant::now();
            (self.repaint)();
        }
    }

    /// Rows that were added above when a narrower terminal wrapped the bars. The editor does not
    /// know about them.
    fn broken_rows(&mut self) -> usize {
        let now = width();
        let bars = self.screen.lines(now.saturating_sub(1));
        let bars = bars.iter().map(|line| measure_text_width(line)).collect();
        let (before, drawn) = std::mem::replace(&mut self.before, (now, bars));
        if now >= before {
            return 0;
        }
        drawn.iter().map(|line| line.div_ceil(now.max(1)).saturating_sub(1)).sum()
    }

    fn has_bars(&self) -> bool {
        !self.screen.lines(1).is_empty()
    }
}

fn up(lines: usize) -> String {
    if lines == 0 { String::new() } else { format!("\u{1b}[{lines}A") }
}

/// A prompt: bars, and below them the label.
struct Line {
    label: String,
    bars: Option<Arc<Screen>>,
    above: Arc<AtomicUsize>,
}

impl Prompt for Line {
    fn render_prompt_left(&self) -> Cow<'_, str> {
        let Some(screen) = self.bars.as_ref().filter(|screen| !screen.is_dumb()) else {
            return Cow::Borrowed(&self.label);
        };
        let mut lines = screen.lines(width().saturating_sub(1));
        self.above.store(lines.len(), Ordering::Relaxed);
        lines.push(self.label.clone());
        Cow::Owned(lines.join("\n"))
    }

    fn render_prompt_right(&self) -> Cow<'_, str> {
        Cow::Borrowed("")
    }

    fn render_prompt_indicator(&self, _: PromptEditMode) -> Cow<'_, str> {
        Cow::Borrowed("")
    }

    fn render_prompt_multiline_indicator(&self) -> Cow<'_, str> {
        Cow::Borrowed("… ")
    }

    fn render_prompt_history_search_indicator(&self, search: PromptHistorySearch) -> Cow<'_, str> {
        Cow::Owned(format!("(search: {}) ", search.term))
    }
}

/// Completes the words of a line.
struct Words(Vec<String>);

impl Completer for Words {
    fn complete(&mut self, line: &str, position: usize) -> CompletionResult {
        let typed = line.get(..position).unwrap_or(line);
        let start = typed.rfind(char::is_whitespace).map_or(0, |at| at + 1);
        let word = &typed[start..];
        let fitting = self.0.iter().filter(|known| known.starts_with(word));
        let suggestion = |known: &String| Suggestion {
            value: known.clone(),
            span: Span::new(start, position),
            append_whitespace: true,
            ..Suggestion::default()
        };
        CompletionResult::fresh(fitting.map(suggestion).collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_at_the_cursor_is_completed() {
        let mut words = Words(vec!["details".to_owned(), "旅.予約".to_owned()]);
        let mut completed = |line: &str| {
            let found = words.complete(line, line.len());
            let found = found.suggestions().iter();
            found.map(|it| (it.value.clone(), it.span.start)).collect::<Vec<_>>()
        };
        assert_eq!(completed("de"), [("details".to_owned(), 0)]);
        assert_eq!(completed("details 旅"), [("旅.予約".to_owned(), 8)]);
        assert_eq!(completed("none "), [("details".to_owned(), 5), ("旅.予約".to_owned(), 5)]);
        assert_eq!(completed("x"), []);
    }
}
