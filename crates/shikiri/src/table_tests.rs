use jiff::tz::TimeZone;

use super::*;

const COLUMNS: [TableColumn; 5] = [
    TableColumn::id("id"),
    TableColumn::state("status"),
    TableColumn::time("created"),
    TableColumn::number("cost"),
    TableColumn::text("title"),
];

fn rows() -> Vec<Vec<String>> {
    let row = |cells: [&str; 5]| cells.map(str::to_owned).to_vec();
    vec![
        row([
            "run_019a9a9a9a9a7000800000000a111111",
            "running",
            "2026-11-19T04:57:00.000Z",
            "0.5",
            "旅行の計画を立てて、宿を予約する",
        ]),
        row(["chosen", "failed", "-", "12.0000", "short"]),
    ]
}

fn view(width: Option<usize>) -> TableView {
    let now = "2026-11-19T05:00:00.000Z".parse().unwrap();
    let time = width.map(|_| LocalTime::at(now, TimeZone::fixed(jiff::tz::offset(9))));
    TableView { width, time, output: Output::plain() }
}

#[test]
fn a_pipe_gets_every_value_whole() {
    let table = fit_table(&COLUMNS, &rows(), &view(None));
    assert_eq!(
        table.lines,
        [
            "ID                                    STATUS   CREATED                      COST  TITLE",
            "run_019a9a9a9a9a7000800000000a111111  running  2026-11-19T04:57:00.000Z      0.5  \
             旅行の計画を立てて、宿を予約する",
            "chosen                                failed   -                         12.0000  short",
        ]
    );
}

#[test]
fn a_terminal_gets_short_ids_and_times_from_here_and_now() {
    let table = fit_table(&COLUMNS, &rows(), &view(Some(80)));
    assert_eq!(
        table.lines,
        [
            "ID      STATUS   CREATED       COST  TITLE",
            "111111  running  3 min ago      0.5  旅行の計画を立てて、宿を予約する",
            "chosen  failed   -          12.0000  short",
        ]
    );
}

#[test]
fn texts_are_cut_first_and_columns_left_out_last() {
    let table = fit_table(&COLUMNS, &rows(), &view(Some(48)));
    assert_eq!(table.lines[1], "111111  running  3 min ago      0.5  旅行の計画…");
    let table = fit_table(&COLUMNS, &rows(), &view(Some(34)));
    assert_eq!(table.left_out, ["created"]);
    assert_eq!(table.lines[2], "chosen  failed   12.0000  short");
}

#[test]
fn no_row_is_wider_than_the_terminal() {
    for width in 1..140 {
        let table = fit_table(&COLUMNS, &rows(), &view(Some(width)));
        assert_eq!(table.lines.len(), 3);
        for line in table.lines {
            assert!(measure_text_width(&line) <= width, "{width}: {line}");
        }
    }
}

#[test]
fn states_have_colours_that_take_no_room() {
    let view = TableView { output: Output::coloured(), ..view(Some(80)) };
    let table = fit_table(&COLUMNS, &rows(), &view);
    assert!(table.lines[1].contains("\u{1b}[36mrunning\u{1b}[0m  3 min"), "{:?}", table.lines);
    assert!(table.lines[2].contains("\u{1b}[31mfailed\u{1b}[0m   -"), "{:?}", table.lines);
}

#[test]
fn a_long_name_is_cut_at_its_start_so_that_its_end_can_be_typed() {
    assert_eq!(cut_start("a-name-that-a-person-chose", 12), "…erson-chose");
    assert_eq!(cut_start("short", 12), "short");
}
