use super::*;

fn event(seq: u64) -> Seen {
    Seen::new(seq, "log", format!("{{\"seq\":{seq}}}").as_bytes())
}

fn log(head: u64) -> Vec<Seen> {
    (1..=head).map(event).collect()
}

fn history(after: u64, seqs: &[u64]) -> History {
    let seen = seqs.iter().map(|seq| event(*seq)).collect();
    History { name: "reader 1".to_owned(), after, seen, whole: true }
}

fn kind(history: &History, log: &[Seen]) -> Option<Kind> {
    check(history, log).err().map(|violation| violation.kind)
}

#[test]
fn a_history_that_fits_the_log_passes() {
    assert_eq!(kind(&history(0, &[1, 2, 3, 4, 5]), &log(5)), None);
    assert_eq!(kind(&history(3, &[4, 5]), &log(5)), None);
    let cut = History { whole: false, ..history(0, &[1, 2]) };
    assert_eq!(kind(&cut, &log(5)), None);
    assert_eq!(check_log("log", &log(5)), Ok(()));
}

#[test]
fn every_planted_violation_is_found_and_named() {
    let log = log(6);
    let planted = [
        (history(0, &[1, 2, 4, 5, 6]), Kind::Gap { after: 2, next: 4 }),
        (history(0, &[2, 3, 4, 5, 6]), Kind::Gap { after: 0, next: 2 }),
        (history(0, &[1, 2, 2, 3, 4, 5, 6]), Kind::Repeat { seq: 2 }),
        (history(2, &[2, 3, 4, 5, 6]), Kind::Repeat { seq: 2 }),
        (history(0, &[1, 2, 3, 2, 4, 5, 6]), Kind::Disorder { after: 3, next: 2 }),
        (history(0, &[1, 2, 3, 4, 5, 6, 7]), Kind::Lost { seq: 7 }),
        (history(0, &[0, 1, 2]), Kind::Lost { seq: 0 }),
        (history(0, &[1, 2, 3, 4]), Kind::Short { last: 4, head: 6 }),
        (history(0, &[]), Kind::Short { last: 0, head: 6 }),
    ];
    for (history, expected) in planted {
        assert_eq!(kind(&history, &log), Some(expected));
    }
}

#[test]
fn one_changed_byte_or_name_is_found() {
    let log = log(4);
    let mut changed = history(0, &[1, 2, 3, 4]);
    changed.seen[2] = Seen::new(3, "log", b"{\"seq\":3 }");
    assert_eq!(kind(&changed, &log), Some(Kind::Changed { seq: 3 }));
    changed.seen[2] = Seen::new(3, "lo", b"g{\"seq\":3}");
    assert_eq!(kind(&changed, &log), Some(Kind::Changed { seq: 3 }));
}

#[test]
fn a_log_with_a_hole_is_no_measure() {
    let mut holed = log(5);
    holed.remove(2);
    let found = check_log("log", &holed).unwrap_err();
    assert_eq!(found.kind, Kind::Gap { after: 2, next: 4 });
}

#[test]
fn the_report_tells_who_what_and_where() {
    let violation = check(&history(0, &[1, 2, 4, 5]), &log(5)).unwrap_err();
    assert_eq!(
        violation.to_string(),
        "reader 1: gap: after 2 came 4 (place 2, around it [1, 2, 4, 5])"
    );
}
