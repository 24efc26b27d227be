//! The kinds of settings: how a source's value is validated and converted.

use std::fmt::{Debug, Display};
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use shikiri_model::lane::LaneLimits;

use super::DAY;
use super::layers::Source;
use super::written::{FromVariable, LenientNumber, word_of};
use crate::exit::Failure;
use crate::store_url::StoreUrl;
use crate::trust::foreign_store;

const MIB: u64 = 1024 * 1024;

pub trait SettingKind {
    /// The value as written in a flag, a variable or a file.
    type Written: FromVariable + Clone + Debug;
    type Value;
    /// The written form, for the reference.
    fn form() -> String;

    fn check(written: Self::Written, source: &Source<'_>) -> Result<Self::Value, Failure>;
    fn show(value: &Self::Value) -> String;

    /// The value as shown to a person who is asked for trust; None if it requests nothing.
    fn request(written: &Self::Written, _root: &Path) -> Option<String> {
        Some(format!("{written:?}"))
    }
}

/// A field of the configuration, which may be optional.
pub(super) trait Held<T> {
    fn get(&self) -> Option<&T>;
}

impl<T> Held<T> for T {
    fn get(&self) -> Option<&T> {
        Some(self)
    }
}

impl<T> Held<T> for Option<T> {
    fn get(&self) -> Option<&T> {
        self.as_ref()
    }
}

pub struct Text;

impl SettingKind for Text {
    type Written = String;
    type Value = String;

    fn form() -> String {
        "text".to_owned()
    }

    fn check(written: String, _: &Source<'_>) -> Result<String, Failure> {
        Ok(written)
    }

    fn show(value: &String) -> String {
        value.clone()
    }
}

pub struct Switch;

impl SettingKind for Switch {
    type Written = bool;
    type Value = bool;

    fn form() -> String {
        "`true` or `false`".to_owned()
    }

    fn check(written: bool, _: &Source<'_>) -> Result<bool, Failure> {
        Ok(written)
    }

    fn show(value: &bool) -> String {
        value.to_string()
    }

    /// False is the default and requests nothing.
    fn request(written: &bool, _: &Path) -> Option<String> {
        written.then(|| "true".to_owned())
    }
}

/// In a variable, separated by commas.
pub struct List;

impl SettingKind for List {
    type Written = Vec<String>;
    type Value = Vec<String>;

    fn form() -> String {
        "list of texts".to_owned()
    }

    fn check(written: Vec<String>, _: &Source<'_>) -> Result<Vec<String>, Failure> {
        Ok(written)
    }

    fn show(value: &Vec<String>) -> String {
        value.join(",")
    }

    fn request(written: &Vec<String>, _: &Path) -> Option<String> {
        (!written.is_empty()).then(|| format!("{written:?}"))
    }
}

pub struct Number<T>(PhantomData<T>);

impl<T: FromVariable + Clone + Debug + Display> SettingKind for Number<T> {
    type Written = T;
    type Value = T;

    fn form() -> String {
        "whole number".to_owned()
    }

    fn check(written: T, _: &Source<'_>) -> Result<T, Failure> {
        Ok(written)
    }

    fn show(value: &T) -> String {
        value.to_string()
    }
}

/// A number of at least one.
pub struct Count<T>(PhantomData<T>);

impl<T: FromVariable + Clone + Debug + Display + Default + PartialEq> SettingKind for Count<T> {
    type Written = T;
    type Value = T;

    fn form() -> String {
        "whole number from 1".to_owned()
    }

    fn check(written: T, source: &Source<'_>) -> Result<T, Failure> {
        if written == T::default() {
            return Err(source.complaint("is 0", "allow at least 1"));
        }
        Ok(written)
    }

    fn show(value: &T) -> String {
        value.to_string()
    }
}

/// A number of units of `UNIT` seconds; fractions are allowed.
pub struct Span<const UNIT: u64>;
pub(super) type Seconds = Span<1>;
pub(super) type Days = Span<{ DAY.as_secs() }>;

impl<const UNIT: u64> SettingKind for Span<UNIT> {
    type Written = f64;
    type Value = Duration;

    fn form() -> String {
        "number; 0.2 seconds to 100 years".to_owned()
    }

    fn check(written: f64, source: &Source<'_>) -> Result<Duration, Failure> {
        let allowed = Duration::from_millis(200)..=36_525 * DAY;
        match Duration::try_from_secs_f64(written * UNIT as f64) {
            Ok(span) if allowed.contains(&span) => Ok(span),
            _ => {
                let next = "write a time from 0.2 seconds to 100 years";
                Err(source.complaint(&format!("{written} is out of range"), next))
            }
        }
    }

    fn show(value: &Duration) -> String {
        (value.as_secs_f64() / UNIT as f64).to_string()
    }
}

/// A number of mebibytes, stored in bytes.
pub struct Mebibytes;

impl SettingKind for Mebibytes {
    type Written = u64;
    type Value = u64;

    fn form() -> String {
        "whole number of MiB".to_owned()
    }

    fn check(written: u64, _: &Source<'_>) -> Result<u64, Failure> {
        Ok(written.saturating_mul(MIB))
    }

    fn show(value: &u64) -> String {
        (value / MIB).to_string()
    }
}

/// One of a few values.
pub struct Choice<T>(PhantomData<T>);

impl<T: ValueEnum + FromVariable + Debug> SettingKind for Choice<T> {
    type Written = T;
    type Value = T;

    fn form() -> String {
        let words: Vec<_> =
            T::value_variants().iter().map(|word| format!("`{}`", word_of(word))).collect();
        words.join(" or ")
    }

    fn check(written: T, _: &Source<'_>) -> Result<T, Failure> {
        Ok(written)
    }

    fn show(value: &T) -> String {
        word_of(value)
    }
}

/// A program file; a relative path starts from its source.
pub struct Program;

impl SettingKind for Program {
    type Written = String;
    type Value = PathBuf;

    fn form() -> String {
        "path".to_owned()
    }

    fn check(written: String, source: &Source<'_>) -> Result<PathBuf, Failure> {
        Ok(source.layer.folder.join(written))
    }

    fn show(value: &PathBuf) -> String {
        value.display().to_string()
    }
}

/// Relative paths start from their source.
pub struct Folders;

impl SettingKind for Folders {
    type Written = Vec<PathBuf>;
    type Value = Vec<PathBuf>;

    fn form() -> String {
        "list of paths".to_owned()
    }

    fn check(written: Vec<PathBuf>, source: &Source<'_>) -> Result<Vec<PathBuf>, Failure> {
        Ok(written.into_iter().map(|path| source.layer.folder.join(path)).collect())
    }

    fn show(value: &Vec<PathBuf>) -> String {
        let paths: Vec<_> = value.iter().map(|path| path.display().to_string()).collect();
        paths.join(":")
    }

    fn request(written: &Vec<PathBuf>, _: &Path) -> Option<String> {
        (!written.is_empty()).then(|| format!("{written:?}"))
    }
}

pub struct Address;

impl SettingKind for Address {
    type Written = String;
    type Value = SocketAddr;

    fn form() -> String {
        "`IP:PORT`".to_owned()
    }

    fn check(written: String, source: &Source<'_>) -> Result<SocketAddr, Failure> {
        let numeric = match written.strip_prefix("localhost:") {
            Some(port) => format!("127.0.0.1:{port}"),
            None => written.clone(),
        };
        numeric.parse().map_err(|_| {
            let what = format!("{written:?} is not an address");
            source.complaint(&what, "write it as IP:PORT, such as 127.0.0.1:7420")
        })
    }

    fn show(value: &SocketAddr) -> String {
        value.to_string()
    }
}

pub struct StoreLocation;

impl SettingKind for StoreLocation {
    type Written = String;
    type Value = StoreUrl;

    fn form() -> String {
        "URL".to_owned()
    }

    fn check(written: String, source: &Source<'_>) -> Result<StoreUrl, Failure> {
        StoreUrl::parse(&written, &source.layer.folder, &source.name())
    }

    fn show(value: &StoreUrl) -> String {
        value.to_string()
    }

    fn request(written: &String, root: &Path) -> Option<String> {
        foreign_store(written, root)
    }
}

pub struct LaneMinutes;

impl SettingKind for LaneMinutes {
    type Written = LenientNumber;
    type Value = f64;

    fn form() -> String {
        "number; what is not above 0 counts as the default".to_owned()
    }

    fn check(written: LenientNumber, _: &Source<'_>) -> Result<f64, Failure> {
        Ok(LaneLimits::read(Some(&written.0), None).ttl_minutes)
    }

    fn show(value: &f64) -> String {
        value.to_string()
    }
}

pub struct LaneCount;

impl SettingKind for LaneCount {
    type Written = LenientNumber;
    type Value = u32;

    fn form() -> String {
        "number, rounded down; what is below 1 counts as the default".to_owned()
    }

    fn check(written: LenientNumber, _: &Source<'_>) -> Result<u32, Failure> {
        Ok(LaneLimits::read(None, Some(&written.0)).max_lanes)
    }

    fn show(value: &u32) -> String {
        value.to_string()
    }
}
