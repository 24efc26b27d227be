//! The table for people and the JSON for comparing runs.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::json;
use shikiri_store::{Clock, SystemClock};

use crate::figure::{Figure, Goal};
use crate::world::World;

const HEADERS: [&str; 6] = ["figure", "value", "peer or limit", "ratio", "goal", "verdict"];

pub(crate) fn print(figures: &[Figure]) {
    let shown = figures.iter().filter(|figure| !figure.detail);
    println!();
    table(HEADERS.map(str::to_owned).into(), shown.map(|figure| row(figure).into()).collect());
    for (reason, names) in missing(figures) {
        eprintln!("\nNOT MEASURED: {reason}\n  {}", names.join("\n  "));
    }
}

/// What could not be had, by reason.
fn missing(figures: &[Figure]) -> BTreeMap<&str, Vec<&str>> {
    let mut missing = BTreeMap::<_, Vec<_>>::new();
    for figure in figures {
        if let Some(reason) = &figure.not_measured {
            missing.entry(reason.as_str()).or_default().push(figure.name.as_str());
        }
    }
    missing
}

/// Columns as wide as their widest cell.
pub(crate) fn table(headers: Vec<String>, mut rows: Vec<Vec<String>>) {
    rows.insert(0, headers);
    let widths: Vec<usize> = (0..rows[0].len())
        .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
        .collect();
    for (index, row) in rows.iter().enumerate() {
        let cells: Vec<_> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        println!("{}", cells.join("  ").trim_end());
        if index == 0 {
            println!("{}", widths.iter().map(|w| "-".repeat(*w)).collect::<Vec<_>>().join("  "));
        }
    }
}

fn row(figure: &Figure) -> [String; 6] {
    let against = figure.against.as_ref().map(|against| {
        format!("{} {}", number(crate::figure::median(&against.samples)), against.name)
    });
    let goal = figure.goal.map(|goal| match goal {
        Goal::RatioAtLeast(least) => format!("≥ {least} ×"),
        Goal::RatioAtMost(most) => format!("≤ {most} ×"),
        Goal::AtMost(most) => format!("≤ {most} {}", figure.unit),
        Goal::AtLeast(least) => format!("≥ {} {}", number(least), figure.unit),
    });
    let verdict = match (figure.goal, &figure.not_measured) {
        (_, Some(_)) => "NOT MEASURED",
        (None, None) => "",
        (Some(_), None) if figure.holds() => "holds",
        (Some(_), None) => "MISSED",
    };
    let value = match figure.not_measured {
        Some(_) => String::new(),
        None => format!("{} {}", number(figure.value()), figure.unit),
    };
    [
        figure.name.clone(),
        value,
        against.unwrap_or_default(),
        figure.ratio().map(|ratio| format!("{ratio:.2}")).unwrap_or_default(),
        goal.unwrap_or_default(),
        verdict.to_owned(),
    ]
}

/// Two decimals where they matter, thousands set apart.
pub(crate) fn number(value: f64) -> String {
    if !value.is_finite() {
        return "-".to_owned();
    }
    if value.abs() < 100.0 && value.fract() != 0.0 {
        return format!("{value:.2}");
    }
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) && !text.ends_with('-') {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

pub(crate) fn keep(name: &str, world: &World, figures: &[Figure]) -> Result<PathBuf> {
    let at = SystemClock.now();
    let figures: Vec<_> = figures
        .iter()
        .map(|figure| {
            json!({
                "figure": figure,
                "value": figure.value(),
                "ratio": figure.ratio(),
                "holds": figure.holds(),
            })
        })
        .collect();
    let text = serde_json::to_string_pretty(&json!({
        "bench": name,
        "at": at,
        "quick": world.quick,
        "cores": std::thread::available_parallelism().map_or(0, usize::from),
        "figures": figures,
    }))?;
    let path = world.out.join(format!("{name}-{}.json", at.as_millis()));
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}
