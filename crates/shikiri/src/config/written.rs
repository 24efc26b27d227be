//! Values as written in flags, variables and files, and the parsing of variables.

use std::borrow::Cow;
use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

use clap::ValueEnum;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer};

use super::table::Setting;
use super::{Durability, LogFormat};
use crate::exit::Failure;

pub trait FromVariable: Sized {
    fn from_variable(variable: Variable) -> Result<Self, Failure>;
}

/// An environment variable of a setting, with its value.
pub struct Variable {
    pub(super) setting: &'static Setting,
    pub(super) name: &'static str,
    pub(super) value: OsString,
}

impl Variable {
    fn text(self) -> Result<String, Failure> {
        let complain =
            |_| Failure::usage(format!("{}: is not UTF-8", self.name), "write plain text");
        self.value.into_string().map_err(complain)
    }

    fn number<T: FromStr>(self) -> Result<T, Failure> {
        let (setting, name) = (self.setting, self.name);
        let text = self.text()?;
        text.trim().parse().map_err(|_| {
            let what = format!("{name}: {text:?} is not a number");
            Failure::usage(what, &format!("write one ({})", setting.about()))
        })
    }

    fn word<T: ValueEnum>(self) -> Result<T, Failure> {
        // The setting is named by its first variable, whichever was read.
        let name = self.setting.variables[0];
        let text = self.text()?;
        T::from_str(&text, true).map_err(|_| {
            let words: Vec<String> = T::value_variants().iter().map(word_of).collect();
            let what = format!("{name}: {text:?} is not known");
            Failure::usage(what, &format!("write {}", words.join(" or ")))
        })
    }
}

pub(super) fn word_of<T: ValueEnum>(value: &T) -> String {
    value.to_possible_value().map(|word| word.get_name().to_owned()).unwrap_or_default()
}

/// Errors name `variable`.
pub(crate) fn parse_switch(variable: &str, text: &str) -> Result<bool, Failure> {
    shikiri_hook::trust_file::parse_switch(text).ok_or_else(|| {
        let what = format!("{variable}: {text:?} is unclear");
        Failure::usage(what, "write true or false")
    })
}

impl FromVariable for String {
    fn from_variable(variable: Variable) -> Result<Self, Failure> {
        variable.text()
    }
}

impl FromVariable for bool {
    fn from_variable(variable: Variable) -> Result<Self, Failure> {
        let name = variable.name;
        parse_switch(name, &variable.text()?)
    }
}

/// Separated by commas.
impl FromVariable for Vec<String> {
    fn from_variable(variable: Variable) -> Result<Self, Failure> {
        let text = variable.text()?;
        let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
        Ok(items.map(str::to_owned).collect())
    }
}

impl FromVariable for Vec<PathBuf> {
    fn from_variable(variable: Variable) -> Result<Self, Failure> {
        let paths = std::env::split_paths(&variable.value);
        Ok(paths.filter(|path| !path.as_os_str().is_empty()).collect())
    }
}

macro_rules! from_variable {
    ($method:ident: $($type:ty),+) => {
        $(impl FromVariable for $type {
            fn from_variable(variable: Variable) -> Result<Self, Failure> {
                variable.$method()
            }
        })+
    };
}

from_variable!(number: u32, u64, usize, f64);
from_variable!(word: Durability, LogFormat);

/// A number as written. Lane settings keep the rule of the bridge: values that are not numbers
/// above zero mean the default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LenientNumber(pub String);

#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
enum NumberOrText {
    Whole(i64),
    Number(f64),
    Text(String),
}

impl JsonSchema for LenientNumber {
    fn schema_name() -> Cow<'static, str> {
        "LenientNumber".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        NumberOrText::json_schema(generator)
    }
}

impl FromVariable for LenientNumber {
    fn from_variable(variable: Variable) -> Result<Self, Failure> {
        variable.text().map(Self)
    }
}

impl<'de> Deserialize<'de> for LenientNumber {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(match NumberOrText::deserialize(deserializer)? {
            NumberOrText::Whole(number) => number.to_string(),
            NumberOrText::Number(number) => number.to_string(),
            NumberOrText::Text(text) => text,
        }))
    }
}
