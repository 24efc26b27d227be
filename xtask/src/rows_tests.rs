use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::{PARTS, check, check_repository, expected_rows, test_names};

/// A complete document with all parts open and without tests.
fn document() -> String {
    let mut text = String::from("# Requirements\n");
    for (part, _) in PARTS {
        write!(
            text,
            "\n## {part}\n\nStatus: open\n\n| row | requirement | tests |\n|---|---|---|\n"
        )
        .unwrap();
        for number in expected_rows(part) {
            writeln!(text, "| {number} | something | – |").unwrap();
        }
    }
    text
}

/// The complete document with the first `from` replaced, which must be there.
fn document_with(from: &str, to: &str) -> String {
    let text = document();
    assert!(text.contains(from), "{from:?} is not in the document");
    text.replacen(from, to, 1)
}

fn line_of(text: &str, content: &str) -> usize {
    text.lines().position(|line| line.starts_with(content)).unwrap() + 1
}

fn tests(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn problems(text: &str) -> Vec<String> {
    check(text, &tests(&["known"])).unwrap_err()
}

#[test]
fn the_repository_keeps_its_rows() {
    let summary = check_repository().unwrap();
    assert_eq!(summary.len(), PARTS.len());
}

#[test]
fn the_expected_set_has_every_row_once() {
    let numbers: Vec<_> = PARTS.iter().flat_map(|(part, _)| expected_rows(part)).collect();
    let count = |area: &str| numbers.iter().filter(|number| number.starts_with(area)).count();
    assert_eq!(["0.", "1.", "2.", "3.", "4."].map(count), [20, 35, 20, 41, 22]);
    assert_eq!(numbers.iter().collect::<BTreeSet<_>>().len(), numbers.len());
}

#[test]
fn a_complete_document_is_summed_up_part_by_part() {
    let text = document_with("| 0.2 | something | – |", "| 0.2 | something | `known`, `other` |");
    let summary = check(&text, &tests(&["known", "other"])).unwrap();
    assert_eq!(summary.len(), PARTS.len());
    assert_eq!(summary[1], "lanes            open      20 rows, 1 with tests");
}

/// The part native-engines is finished, and each of its rows has these tests.
fn document_finished(tests: &str) -> String {
    let text =
        document_with("## native-engines\n\nStatus: open", "## native-engines\n\nStatus: finished");
    expected_rows("native-engines").into_iter().fold(text, |text, number| {
        let row = |tests: &str| format!("| {number} | something | {tests} |");
        text.replacen(&row("–"), &row(tests), 1)
    })
}

#[test]
fn a_finished_part_with_tests_for_all_rows_passes() {
    let summary = check(&document_finished("`known`"), &tests(&["known"])).unwrap();
    let rows = expected_rows("native-engines").len();
    let expected = format!("native-engines   finished  {rows} rows, {rows} with tests");
    assert_eq!(summary[3], expected);
}

#[test]
fn a_row_in_a_finished_part_needs_a_test() {
    let text = document_finished("–");
    let expected: Vec<_> = expected_rows("native-engines")
        .into_iter()
        .map(|number| {
            let line = line_of(&text, &format!("| {number} "));
            format!("{line}: row {number} of finished part native-engines has no test")
        })
        .collect();
    assert_eq!(problems(&text), expected);
}

#[test]
fn a_row_that_stands_twice_is_reported() {
    let text = document_with("| 2.5 |", "| 2.5 | again | – |\n| 2.5 |");
    let first = line_of(&text, "| 2.5 ");
    let expected = format!("{}: row 2.5 stands twice, first on line {first}", first + 1);
    assert_eq!(problems(&text), [expected]);
}

#[test]
fn a_missing_row_is_reported_at_its_part() {
    let text = document_with("| 3.17 | something | – |\n", "");
    let line = line_of(&text, "## hooks");
    assert_eq!(problems(&text), [format!("{line}: row 3.17 is missing from part hooks")]);
}

#[test]
fn a_row_in_the_wrong_part_is_reported_there_and_where_it_lacks() {
    let text = document_with("| 1.8 | something | – |\n", "").replacen(
        "| 1.7 |",
        "| 1.8 | something | – |\n| 1.7 |",
        1,
    );
    let expected = [
        format!("{}: row 1.8 does not belong to part executions", line_of(&text, "| 1.8 ")),
        format!(
            "{}: row 1.8 is missing from part native-engines",
            line_of(&text, "## native-engines")
        ),
    ];
    assert_eq!(problems(&text), expected);
}

#[test]
fn a_missing_part_is_reported() {
    let text = document();
    let text = &text[..text.find("\n## host").unwrap()];
    assert_eq!(problems(text), [format!("{}: part host is missing", text.lines().count())]);
}

#[test]
fn an_empty_document_lacks_every_part() {
    assert_eq!(problems("").len(), PARTS.len());
}

#[test]
fn an_unknown_part_and_a_part_that_stands_twice_are_reported() {
    let text = document() + "\n## extras\n\nStatus: open\n\n## extras\n\nStatus: open\n";
    let line = line_of(&text, "## extras");
    let expected = [
        format!("{line}: extras is no part"),
        format!("{}: extras is no part", line + 4),
        format!("{}: part extras stands twice, first on line {line}", line + 4),
    ];
    assert_eq!(problems(&text), expected);
}

#[test]
fn a_part_without_a_status_is_reported() {
    for status in ["Status: nearly", "Some words.\n\nStatus: finished"] {
        let text = document_with("## teams\n\nStatus: open", &format!("## teams\n\n{status}"));
        let line = line_of(&text, "## teams") + 2;
        let expected = format!("{line}: part teams starts without a status, finished or open");
        assert_eq!(problems(&text), [expected]);
    }
}

#[test]
fn a_named_test_must_exist() {
    let text = document_with("| 4.9 | something | – |", "| 4.9 | something | `known`, `gone` |");
    let line = line_of(&text, "| 4.9 ");
    assert_eq!(problems(&text), [format!("{line}: row 4.9: there is no test `gone`")]);
}

#[test]
fn a_tests_cell_is_a_dash_or_names_in_backticks() {
    for cell in ["known", "", "`known`,", "`known` `known`", "-", "``"] {
        let text =
            document_with("| 4.9 | something | – |", &format!("| 4.9 | something | {cell} |"));
        let start = format!("{}: row 4.9: `–` or test names", line_of(&text, "| 4.9 "));
        assert!(problems(&text)[0].starts_with(&start), "{cell:?}: {:?}", problems(&text));
    }
}

#[test]
fn a_row_has_three_cells_and_says_something() {
    let text = document_with("| 0.9 | something | – |", "| 0.9 | one | two | – |");
    let line = line_of(&text, "| 0.9 ");
    assert!(problems(&text)[0].starts_with(&format!("{line}: a row has three cells")));
    let text = document_with("| 0.9 | something | – |", "| 0.9 | | – |");
    assert_eq!(problems(&text)[0], format!("{line}: row 0.9 says nothing"));
}

#[test]
fn every_problem_is_listed() {
    let text = document_with("| 0.9 | something | – |", "| 0.9 | something | `gone` |").replacen(
        "| 2.5 | something | – |\n",
        "",
        1,
    );
    assert_eq!(problems(&text).len(), 2);
}

#[test]
fn marked_functions_are_tests() {
    let source = "
        #[test] fn on_one_line() {}
        #[tokio::test]
        async fn in_a_runtime() {}
        #[cfg(unix)]
        #[tokio::test(flavor = \"multi_thread\", worker_threads = 2)]
        #[expect(clippy::too_many_lines, reason = \"a [long] story\")]
        // A remark.
        pub(crate) async fn with_attributes() {}
        proptest! {
            #[test]
            fn with_inputs(text in \".*\") {}
        }
    ";
    let names: BTreeSet<_> = test_names(source).into_iter().collect();
    let expected = ["on_one_line", "in_a_runtime", "with_attributes", "with_inputs"];
    assert_eq!(names, tests(&expected));
}

#[test]
fn scenarios_are_tests_of_every_engine() {
    let source = "
        each_engine! { first; second, only native: \"a; reason }\"; }
        each_engine! {
            only native: \"another\";
            // remark;
            third;
        }
        async fn fourth() {}
    ";
    assert_eq!(test_names(source), ["first", "second", "third"]);
}

#[test]
fn what_is_not_run_is_no_test() {
    let source = r##"
        fn plain() {}
        #[cfg(test)]
        fn helper() {}
        // #[test] fn in_a_remark() {}
        /* #[test] fn in_a_comment() {} */
        const TEXT: &str = "\" #[test] fn in_a_string() {}";
        const RAW: &str = r#" " #[test] fn in_a_raw_string() {}"#;
        proptest! { fn unmarked(x in 0..9) {} }
        macro_rules! story { ($name:ident) => { #[test] fn $name() {} } }
        #[test]
        mod no_function {}
    "##;
    let names = test_names(source);
    assert_eq!(names, ["$name"]);
}

#[test]
fn quotes_do_not_hide_the_tests_after_them() {
    let source = r#"
        const QUOTES: [char; 4] = ['"', '\'', '\\', '–'];
        fn first<'a>(text: &'a str) -> &'a str { text }
        #[test]
        fn after_quotes() {}
    "#;
    assert_eq!(test_names(source), ["after_quotes"]);
}
