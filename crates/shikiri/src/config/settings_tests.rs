//! Every setting of the table is read from each of its sources.

use std::ffi::OsString;
use std::fs;

use clap::{Args as _, Command, FromArgMatches as _};

use super::table::{FlagScope, ProjectRule, Setting};
use super::{BrowserFlags, Config, GlobalFlags, ServeFlags, Settings, Surroundings};

/// Two values of the setting in the form that it shows.
fn values_of(setting: &Setting) -> [String; 2] {
    let form = (setting.form)();
    let words: Vec<&str> = form.split('`').skip(1).step_by(2).collect();
    let values = match (&words[..], form.as_str()) {
        ([first, second, ..], _) => [*first, *second],
        (["IP:PORT"], _) => ["127.0.0.1:1", "127.0.0.1:2"],
        (_, "URL") => ["sqlite:/a", "sqlite:/b"],
        _ if form.contains("number") => ["7", "8"],
        _ => ["/a", "/b"],
    };
    values.map(str::to_owned)
}

fn in_toml(setting: &Setting, value: &str) -> String {
    let form = (setting.form)();
    let is_bare = form.contains("number") || form.contains("`true`");
    let value = if is_bare { value.to_owned() } else { format!("{value:?}") };
    let value = if form.starts_with("list") { format!("[{value}]") } else { value };
    format!("{} = {value}\n", setting.key)
}

struct World(tempfile::TempDir);

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("xdg/shikiri")).unwrap();
        Self(folder)
    }

    fn write(&self, file: &str, text: &str) {
        fs::write(self.0.path().join(file), text).unwrap();
    }

    /// The configuration with one variable set.
    fn load(&self, flags: Settings, variable: Option<(&str, &str)>) -> Config {
        let xdg = self.0.path().join("xdg");
        let surroundings = Surroundings {
            variable: &|name| match name {
                "XDG_CONFIG_HOME" => Some(xdg.clone().into()),
                "SHIKIRI_TRUST" => Some("1".into()),
                _ => variable.filter(|(set, _)| *set == name).map(|(_, v)| OsString::from(v)),
            },
            current_folder: Some(self.0.path().to_owned()),
            ask: |_| None,
        };
        Config::load(flags, &surroundings).unwrap()
    }
}

#[test]
fn every_setting_is_read_from_its_variables_and_both_files() {
    for setting in Setting::all() {
        let world = World::new();
        let shown = |variable| (setting.show)(&world.load(Settings::default(), variable));
        let [first, second] = values_of(setting);
        for variable in setting.variables {
            for value in [&first, &second] {
                assert_eq!(shown(Some((*variable, value.as_str()))), *value, "{variable}");
            }
        }
        for value in [&first, &second] {
            world.write("xdg/shikiri/config.toml", &in_toml(setting, value));
            assert_eq!(shown(None), *value, "{} in the user's file", setting.key);
        }
        if !matches!(setting.project, ProjectRule::Never) {
            world.write("shikiri.toml", &in_toml(setting, &first));
            assert_eq!(shown(None), first, "{} in the project's file", setting.key);
        }
        let variable = setting.variables[0];
        assert_eq!(shown(Some((variable, &second))), second, "{variable} wins over files");
    }
}

#[test]
fn every_flag_wins_over_the_environment() {
    let command = ServeFlags::augment_args(BrowserFlags::augment_args(GlobalFlags::augment_args(
        Command::new("serve"),
    )));
    for setting in Setting::all() {
        let Some(flag) = &setting.flag else { continue };
        let [value, other] = values_of(setting);
        let takes_value = flag.usage.contains(' ');
        let words = ["serve", flag.name(), &value];
        let words = words.into_iter().take(if takes_value { 3 } else { 2 });
        let matches = command.clone().try_get_matches_from(words).unwrap();
        let settings = match flag.scope {
            FlagScope::Global => GlobalFlags::from_arg_matches(&matches).unwrap().settings,
            FlagScope::Serve => ServeFlags::from_arg_matches(&matches).unwrap().settings,
            FlagScope::Browser => BrowserFlags::from_arg_matches(&matches).unwrap().settings,
        };
        let config = World::new().load(settings, Some((setting.variables[0], &other)));
        assert_eq!((setting.show)(&config), value, "{}", flag.name());
    }
}

/// Errors about numbers and keywords name the first variable.
#[test]
fn the_first_variable_of_a_setting_is_named_after_its_key() {
    for setting in Setting::all() {
        let expected = format!("SHIKIRI_{}", setting.key.to_uppercase());
        assert_eq!(setting.variables[0], expected);
    }
}
