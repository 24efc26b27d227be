//! Tables. A pipe gets every value whole, one row on each line. On a terminal a row never takes more
//! than a line: ids are shortened to an ending, times are local, and what has no room is cut, the
//! least important column first.

use console::{measure_text_width, truncate_str};

use crate::output::{Output, Style};
use crate::short_ids::shorten;
use crate::times::LocalTime;

/// What a column holds, which decides how a terminal shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ColumnKind {
    Text,
    Id,
    Time,
    State,
    Number,
}

#[derive(Clone, Copy, Debug)]
pub struct TableColumn {
    name: &'static str,
    kind: ColumnKind,
    weight: ColumnWeight,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ColumnWeight {
    Minor,
    Usual,
    Major,
}

/// Where a table is shown.
#[derive(Clone, Debug)]
pub struct TableView {
    /// The columns of the terminal; None for a pipe.
    pub width: Option<usize>,
    /// None: times stay as they are.
    pub time: Option<LocalTime>,
    pub output: Output,
}

/// A table as lines, and the names of the columns that had no room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FittedTable {
    pub lines: Vec<String>,
    pub left_out: Vec<&'static str>,
}

const GAP: usize = 2;
/// Texts are not cut to less.
const LEAST_TEXT: usize = 6;
/// The same for ids that people chose.
const LEAST_ID: usize = 12;
/// The same for states, some of which have a reason.
const LEAST_STATE: usize = 10;

impl TableColumn {
    const fn new(name: &'static str, kind: ColumnKind) -> Self {
        Self { name, kind, weight: ColumnWeight::Usual }
    }

    pub const fn text(name: &'static str) -> Self {
        Self::new(name, ColumnKind::Text)
    }

    /// The cells are whole ids.
    pub const fn id(name: &'static str) -> Self {
        Self::new(name, ColumnKind::Id)
    }

    /// The cells are RFC 3339 in UTC, or words such as `-`.
    pub const fn time(name: &'static str) -> Self {
        Self::new(name, ColumnKind::Time)
    }

    /// The cells begin with the word of a state.
    pub const fn state(name: &'static str) -> Self {
        Self::new(name, ColumnKind::State)
    }

    /// Aligned right.
    pub const fn number(name: &'static str) -> Self {
        Self::new(name, ColumnKind::Number)
    }

    /// The first to be cut and to be left out.
    #[must_use]
    pub const fn minor(self) -> Self {
        Self { weight: ColumnWeight::Minor, ..self }
    }

    /// The last to be left out.
    #[must_use]
    pub const fn major(self) -> Self {
        Self { weight: ColumnWeight::Major, ..self }
    }

    /// Columns of texts.
    pub fn texts(names: &[&'static str]) -> Vec<Self> {
        names.iter().map(|name| Self::text(name)).collect()
    }

    /// Columns of numbers.
    pub fn numbers(names: &[&'static str]) -> Vec<Self> {
        names.iter().map(|name| Self::number(name)).collect()
    }

    /// The width of its name, as far as that is short.
    fn least_text(self) -> usize {
        self.name.len().clamp(LEAST_TEXT, LEAST_ID)
    }

    /// The lower, the sooner it is cut. None: it is never cut.
    fn cut_rank(self) -> Option<(u8, usize)> {
        match (self.kind, self.weight) {
            (ColumnKind::Text, ColumnWeight::Minor) => Some((0, self.least_text())),
            (ColumnKind::Text, _) => Some((1, self.least_text())),
            (ColumnKind::Id, _) => Some((2, LEAST_ID)),
            (ColumnKind::State, _) => Some((3, LEAST_STATE)),
            (ColumnKind::Time | ColumnKind::Number, _) => None,
        }
    }

    /// The lower, the sooner it is left out.
    fn drop_rank(self) -> (ColumnWeight, u8) {
        let by_kind = match self.kind {
            ColumnKind::Time => 1,
            ColumnKind::Number => 2,
            ColumnKind::Text => 3,
            ColumnKind::State => 4,
            ColumnKind::Id => 5,
        };
        (self.weight, by_kind)
    }
}

/// Lays out rows of whole values.
pub fn fit_table(columns: &[TableColumn], rows: &[Vec<String>], view: &TableView) -> FittedTable {
    let cells = |at: usize| -> Vec<&str> {
        rows.iter().map(|row| row.get(at).map_or("", String::as_str)).collect()
    };
    let shown: Vec<Vec<String>> = columns
        .iter()
        .enumerate()
        .map(|(at, column)| match view.width {
            Some(_) => cells_of_terminal(*column, &cells(at), view),
            None => cells(at).into_iter().map(str::to_owned).collect(),
        })
        .collect();
    let natural = columns.iter().zip(&shown).map(|(column, cells)| {
        let widest = cells.iter().map(|cell| measure_text_width(cell)).max().unwrap_or(0);
        Some(widest.max(column.name.len()))
    });
    let mut widths: Vec<Option<usize>> = natural.collect();
    if let Some(width) = view.width {
        fit(columns, &mut widths, width);
    }
    let line = |cells: Vec<&str>, paints: bool| {
        let fitted =
            columns.iter().zip(&widths).zip(cells).filter_map(|((column, width), cell)| {
                width.map(|width| pad(*column, cell, width, paints.then_some(view.output)))
            });
        let line = fitted.collect::<Vec<_>>().join(&" ".repeat(GAP)).trim_end().to_owned();
        // What cannot be cut may be wider than a very narrow terminal.
        view.width.map(|width| truncate_str(&line, width, "…").into_owned()).unwrap_or(line)
    };
    let names: Vec<String> = columns.iter().map(|column| column.name.to_uppercase()).collect();
    let head = line(names.iter().map(String::as_str).collect(), false);
    let body = (0..rows.len())
        .map(|row| line(shown.iter().map(|cells| cells[row].as_str()).collect(), true));
    let left_out = columns.iter().zip(&widths).filter(|(_, width)| width.is_none());
    FittedTable {
        lines: std::iter::once(view.output.paint(Style::Dim, &head)).chain(body).collect(),
        left_out: left_out.map(|(column, _)| column.name).collect(),
    }
}

fn cells_of_terminal(column: TableColumn, cells: &[&str], view: &TableView) -> Vec<String> {
    match (column.kind, &view.time) {
        (ColumnKind::Id, _) => shorten(cells),
        (ColumnKind::Time, Some(time)) => {
            let local = |cell: &&str| cell.parse().map(|at| time.relative(at));
            cells.iter().map(|cell| local(cell).unwrap_or_else(|_| (*cell).to_owned())).collect()
        }
        _ => cells.iter().map(|cell| (*cell).to_owned()).collect(),
    }
}

/// Narrows the columns, and sets those to None that have no room.
fn fit(columns: &[TableColumn], widths: &mut [Option<usize>], room: usize) {
    loop {
        let shown = widths.iter().flatten();
        let total = shown.clone().sum::<usize>() + GAP * shown.count().saturating_sub(1);
        if total <= room {
            return;
        }
        let cuttable = columns.iter().zip(widths.iter_mut()).filter_map(|(column, width)| {
            let (rank, least) = column.cut_rank()?;
            let width = width.as_mut().filter(|width| **width > least)?;
            Some((rank, width))
        });
        // Of the least important columns, the widest.
        if let Some((_, width)) = cuttable.min_by_key(|(rank, width)| (*rank, usize::MAX - **width))
        {
            *width -= 1;
            continue;
        }
        // Never the first column, which says what a row is about.
        let droppable = columns.iter().zip(widths.iter_mut()).skip(1).rev();
        let next = droppable
            .filter(|(_, width)| width.is_some())
            .min_by_key(|(column, _)| column.drop_rank());
        match next {
            Some((_, width)) => *width = None,
            None => return,
        }
    }
}

/// A cell of exactly this width.
fn pad(column: TableColumn, cell: &str, width: usize, output: Option<Output>) -> String {
    let cut = match column.kind {
        ColumnKind::Id => cut_start(cell, width),
        _ => truncate_str(cell, width, "…").into_owned(),
    };
    let gap = " ".repeat(width.saturating_sub(measure_text_width(&cut)));
    let painted = match (column.kind, output) {
        (ColumnKind::State, Some(output)) => output.paint(state_style(cell), &cut),
        _ => cut,
    };
    match column.kind {
        ColumnKind::Number => format!("{gap}{painted}"),
        _ => format!("{painted}{gap}"),
    }
}

/// The end of an id, which can be typed back.
fn cut_start(id: &str, width: usize) -> String {
    let count = id.chars().count();
    if count <= width {
        return id.to_owned();
    }
    let end = id.chars().skip(count + 1 - width);
    std::iter::once('…').chain(end).collect()
}

/// The colour of a state, by its first word.
pub fn state_style(state: &str) -> Style {
    let word = state.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '-').next();
    match word.unwrap_or_default() {
        "running" | "processing" | "in_progress" | "open" | "terminating" => Style::Active,
        "waiting" | "queued" | "pending" | "blocked" | "changed" | "unread" => Style::Warning,
        "completed" | "done" | "ok" | "active" | "agreed" | "answered" => Style::Good,
        "failed" | "error" | "timeout" | "refused" | "lost" | "stale" => Style::Bad,
        "cancelled" | "interrupted" | "ended" | "archived" | "inactive" | "read" => Style::Dim,
        _ => Style::Plain,
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
