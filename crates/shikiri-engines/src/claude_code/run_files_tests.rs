use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use shikiri_executions::execution::{NoTools, ResumeState};
use shikiri_model::execution::PriceList;
use shikiri_model::ids::TenantId;
use shikiri_model::models::ActiveStatus;
use shikiri_model::native::ExecutionLimits;
use shikiri_model::tenant::EgressPolicy;

use super::*;

fn skill(name: &str, content: &str, files: &[(&str, &str)]) -> Skill {
    Skill {
        name: name.into(),
        tenant: TenantId::local(),
        description: "Says \"hi\": always".into(),
        content: content.into(),
        files: files.iter().map(|(p, t)| ((*p).to_owned(), (*t).to_owned())).collect(),
        status: ActiveStatus::Active,
    }
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn skills_are_written_with_a_head_and_their_files() {
    let home = tempfile::tempdir().unwrap();
    let skills = [
        skill("plain", "Do it.", &[("ref/入門.md", "text")]),
        skill("whole", "---\nname: whole\n---\nDo it.", &[]),
    ];
    let dir = UntrustedDir::open(home.path()).unwrap();
    let plugin = home.path().join(write_skills(&dir, &skills).unwrap().unwrap());
    let read = |path: &str| std::fs::read_to_string(plugin.join("skills").join(path)).unwrap();
    assert_eq!(
        read("plain/SKILL.md"),
        "---\nname: \"plain\"\ndescription: \"Says \\\"hi\\\": always\"\n---\n\nDo it."
    );
    assert_eq!(read("whole/SKILL.md"), "---\nname: whole\n---\nDo it.");
    assert_eq!(read("plain/ref/入門.md"), "text");
    assert_eq!(mode(&plugin.join("skills/plain/SKILL.md")), 0o600);
    assert_eq!(write_skills(&dir, &[]), Ok(None));
}

#[test]
fn no_skill_writes_outside_of_its_folder() {
    for bad in ["../x", "/etc/x", "a/../../x", "", ".", "a\0b"] {
        let home = tempfile::tempdir().unwrap();
        let dir = UntrustedDir::open(home.path()).unwrap();
        let refused = write_skills(&dir, &[skill("s", "x", &[(bad, "evil")])]);
        assert!(refused.is_err(), "{bad:?}");
    }
    for bad in ["..", "a/b", "/a", ""] {
        let home = tempfile::tempdir().unwrap();
        let dir = UntrustedDir::open(home.path()).unwrap();
        assert!(write_skills(&dir, &[skill(bad, "x", &[])]).is_err(), "{bad:?}");
    }
}

#[test]
fn folders_are_private_and_a_run_finds_nothing_of_the_one_before() {
    let place = tempfile::tempdir().unwrap();
    let order = TurnRequest {
        prompt: String::new(),
        system_prompt: String::new(),
        model: shikiri_model::models::Model::offline(),
        subagent_model: None,
        aliases: BTreeMap::new(),
        resume: None,
        servers: Vec::new(),
        skills: Vec::new(),
        tools: Arc::new(NoTools),
        folder: place.path().join("work"),
        home: place.path().join("home"),
        env: BTreeMap::new(),
        secrets: Vec::new(),
        limits: ExecutionLimits::default(),
        prices: PriceList::default(),
        memory: ResumeState::default(),
        egress: EgressPolicy::default(),
        loopback_ports: Vec::new(),
    };
    let dir = prepare(&order).unwrap();
    let home = &order.home;
    assert_eq!((mode(home), mode(&home.join("claude"))), (0o700, 0o700));
    std::fs::write(home.join("claude/kept"), "").unwrap();
    std::fs::write(home.join("servers-x.json"), "secret").unwrap();
    write_skills(&dir, &[skill("old", "x", &[])]).unwrap();

    let dir = prepare(&order).unwrap();
    let left: Vec<_> = std::fs::read_dir(home).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "claude and tmp: {left:?}");
    assert!(home.join("claude/kept").exists());
    assert!(prepare(&TurnRequest { home: PathBuf::new(), ..order.clone() }).is_err());

    let servers = McpServersFile::write(dir, Map::new()).unwrap();
    let path = home.join(servers.name());
    assert_eq!(mode(&path), 0o600);
    drop(servers);
    assert!(!path.exists());
}
