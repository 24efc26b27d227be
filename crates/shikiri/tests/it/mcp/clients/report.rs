//! What a script told of its client, and what was wrong with it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

pub(super) struct Report {
    who: String,
    /// What the client saw, by check.
    saw: BTreeMap<String, Value>,
    judged: BTreeSet<String>,
    wrong: Vec<String>,
    /// Lines that are no report: what the client itself had to say.
    said: Vec<String>,
}

impl Report {
    pub(super) fn read(who: String, code: i32, output: &str) -> Self {
        let (saw, judged, wrong, said) = Default::default();
        let mut report = Self { who, saw, judged, wrong, said };
        for line in output.lines() {
            match serde_json::from_str::<Value>(line) {
                Ok(Value::Object(mut told)) if told.contains_key("check") => {
                    let check = told["check"].as_str().unwrap_or_default().to_owned();
                    if let Some(saw) = told.remove("saw") {
                        report.saw.insert(check, as_floats(saw));
                    } else {
                        let why = told["failed"].as_str().unwrap_or("it does not say why");
                        report.wrong(&check, why);
                        report.judged.insert(check);
                    }
                }
                _ => report.said.push(line.to_owned()),
            }
        }
        if code != 0 {
            report.wrong("the script itself", &format!("ended with {code}"));
        }
        report
    }

    fn wrong(&mut self, check: &str, why: &str) {
        self.wrong.push(format!("{}, check {check}: {why}", self.who));
    }

    /// What the client saw at this path, or nothing; a check that did not come is wrong.
    pub(super) fn saw(&mut self, check: &str, path: &str) -> Value {
        let is_new = self.judged.insert(check.to_owned());
        match self.saw.get(check) {
            Some(saw) => saw.pointer(path).cloned().unwrap_or_default(),
            None => {
                if is_new {
                    self.wrong(check, "was not done");
                }
                Value::Null
            }
        }
    }

    pub(super) fn is(&mut self, check: &str, path: &str, wanted: Value) {
        let (found, wanted) = (self.saw(check, path), as_floats(wanted));
        if self.saw.contains_key(check) && found != wanted {
            self.wrong(check, &format!("{path} should be {wanted}, is {found}"));
        }
    }

    /// Whether what the client saw there has all of these in it.
    pub(super) fn has_all(&mut self, check: &str, path: &str, wanted: &[&str]) {
        let found = self.saw(check, path);
        let has = |name: &str| found.as_array().is_some_and(|all| all.contains(&json!(name)));
        let missing: Vec<_> = wanted.iter().filter(|name| !has(name)).collect();
        self.is_so(check, &format!("{path} lacks {missing:?}: {found}"), missing.is_empty());
    }

    pub(super) fn contains(&mut self, check: &str, path: &str, wanted: &str) {
        let found = self.saw(check, path);
        let has = found.as_str().is_some_and(|text| text.contains(wanted));
        self.is_so(check, &format!("{path} should contain {wanted:?}, is {found}"), has);
    }

    /// `what` should be so.
    pub(super) fn is_so(&mut self, check: &str, what: &str, is_so: bool) {
        self.saw(check, "");
        if self.saw.contains_key(check) && !is_so {
            self.wrong(check, &format!("not so: {what}"));
        }
    }

    #[track_caller]
    pub(super) fn finish(mut self) {
        let known: Vec<_> = self.saw.keys().cloned().collect();
        for check in known {
            if !self.judged.contains(&check) {
                self.wrong(&check, "was done, but is not judged");
            }
        }
        let said = self.said.join("\n");
        assert!(self.wrong.is_empty(), "{}\nwhat else it said:\n{said}", self.wrong.join("\n"));
    }
}

/// 100 and 100.0 are one number, however a language prints it.
pub(super) fn as_floats(value: Value) -> Value {
    match value {
        Value::Number(number) => json!(number.as_f64()),
        Value::Array(items) => items.into_iter().map(as_floats).collect(),
        Value::Object(fields) => {
            fields.into_iter().map(|(name, value)| (name, as_floats(value))).collect()
        }
        other => other,
    }
}
