use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::test_support::executions_in;

use super::*;
use crate::conversations::ConversationPatch;

/// A conversation's workspace, and a secret beside it.
struct World {
    folder: tempfile::TempDir,
    files: WorkspaceFileTools,
}

impl World {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let executions = executions_in(folder.path()).await;
        let tenant = TenantId::local();
        let made =
            executions.create_conversation(&tenant, ConversationPatch::default()).await.unwrap();
        let conversation = made.value.id;
        executions.workspace_folder(&conversation).await.unwrap();
        fs::create_dir(folder.path().join("outside")).unwrap();
        fs::write(folder.path().join("outside/secret"), "secret").unwrap();
        Self { folder, files: WorkspaceFileTools::new(executions, tenant, conversation) }
    }

    fn inside(&self, path: &str) -> PathBuf {
        let workspaces = self.folder.path().join("data/workspaces");
        workspaces.join(self.files.conversation.as_str()).join(path)
    }

    fn outside(&self, path: &str) -> PathBuf {
        self.folder.path().join("outside").join(path)
    }

    async fn call(&self, tool: FileTool, input: Value) -> ToolCallResult {
        // No file in the workspace may block a call for ever.
        let called = self.files.call(tool, input.as_object().unwrap());
        tokio::time::timeout(Duration::from_secs(20), called).await.expect("an answer")
    }

    async fn said(&self, tool: FileTool, input: Value) -> String {
        let answer = self.call(tool, input).await;
        assert!(!answer.is_error, "{answer:?}");
        answer_text(&answer)
    }

    async fn refusal(&self, tool: FileTool, input: Value) -> String {
        let answer = self.call(tool, input.clone()).await;
        assert!(answer.is_error, "{tool:?} {input}: {answer:?}");
        answer_text(&answer)
    }

    /// Expects every tool that takes a path to refuse it.
    async fn refused_by_all(&self, path: &str) {
        for (tool, input) in [
            (FileTool::Read, json!({ "path": path })),
            (FileTool::Edit, json!({ "path": path, "old": "secret", "new": "x" })),
        ] {
            let said = self.refusal(tool, input).await;
            assert!(!said.contains("secret\n") && !said.starts_with("secret"), "{said}");
        }
    }
}

fn answer_text(answer: &ToolCallResult) -> String {
    let part_text = |piece: &ToolContent| match piece {
        ToolContent::Text(text) => text.clone(),
        ToolContent::Image { media_type, .. } => format!("<{media_type}>"),
    };
    answer.content.iter().map(part_text).collect()
}

#[tokio::test]
async fn files_are_written_read_edited_listed_and_searched() {
    let world = World::start().await;
    assert_eq!(world.said(FileTool::List, json!({})).await, "There are no files.");
    let note = json!({ "path": "./a/メモ.md", "content": "一\n二\n三\n" });
    assert_eq!(world.said(FileTool::Write, note.clone()).await, "a/メモ.md is new (12 bytes).");
    assert_eq!(world.said(FileTool::Write, note).await, "a/メモ.md is changed (12 bytes).");
    world.said(FileTool::Write, json!({ "path": "b.txt", "content": "Two\ntwo\n" })).await;
    assert_eq!(world.said(FileTool::Read, json!({ "path": "a/メモ.md" })).await, "一\n二\n三\n");
    let part = json!({ "path": "a/メモ.md", "offset": 2, "limit": 1 });
    assert_eq!(world.said(FileTool::Read, part).await, "二\n");
    let edit = json!({ "path": "b.txt", "old": "two", "new": "deux" });
    assert_eq!(world.said(FileTool::Edit, edit).await, "b.txt is changed (9 bytes).");
    let listed = world.said(FileTool::List, json!({})).await;
    assert_eq!(listed, "a/メモ.md (12 bytes)\nb.txt (9 bytes)\n");
    assert_eq!(
        world.said(FileTool::List, json!({ "folder": "a/" })).await,
        "a/メモ.md (12 bytes)\n"
    );
    let found = world.said(FileTool::Search, json!({ "pattern": "^(two|deux|二)$" })).await;
    assert_eq!(found, "a/メモ.md:2: 二\nb.txt:2: deux\n");
    let any = json!({ "pattern": "TWO", "ignore_case": true, "folder": "." });
    assert_eq!(world.said(FileTool::Search, any).await, "b.txt:1: Two\n");
    let none = json!({ "pattern": "x", "folder": "a" });
    assert_eq!(world.said(FileTool::Search, none).await, "Nothing was found.");
}

#[tokio::test]
async fn arguments_that_do_not_fit_are_told() {
    let world = World::start().await;
    fs::write(world.inside("twice"), "a a").unwrap();
    let cases = [
        (FileTool::Read, json!({}), "path is needed"),
        (FileTool::Read, json!({ "path": 1 }), "path must be a text"),
        (FileTool::Read, json!({ "path": "none" }), "there is no file none"),
        (FileTool::Read, json!({ "path": "twice", "offset": 0 }), "offset must be"),
        (FileTool::Write, json!({ "path": "x" }), "content is needed"),
        (FileTool::Edit, json!({ "path": "twice", "old": "", "new": "" }), "must not be empty"),
        (FileTool::Edit, json!({ "path": "twice", "old": "b", "new": "" }), "does not hold"),
        (FileTool::Edit, json!({ "path": "twice", "old": "a", "new": "b" }), "2 times"),
        (FileTool::Edit, json!({ "path": "twice", "old": "a", "new": "b", "all": 1 }), "true or"),
        (FileTool::Search, json!({ "pattern": "(" }), "no regular expression"),
        (FileTool::Search, json!({ "pattern": "(a{1000}){1000}" }), "no regular expression"),
        (FileTool::List, json!({ "folder": "../" }), "must not hold"),
    ];
    for (tool, input, says) in cases {
        let said = world.refusal(tool, input.clone()).await;
        assert!(said.contains(says), "{input}: {said}");
    }
}

/// Attacks: paths that mean another folder, and links that lead there.
#[tokio::test]
async fn no_path_leads_out_of_the_workspace() {
    let world = World::start().await;
    symlink(world.outside("secret"), world.inside("file")).unwrap();
    symlink("../../../outside/secret", world.inside("relative")).unwrap();
    symlink(world.outside(""), world.inside("folder")).unwrap();
    symlink("/", world.inside("root")).unwrap();
    symlink("/proc/self/environ", world.inside("environ")).unwrap();
    symlink("/dev/zero", world.inside("zero")).unwrap();
    symlink("loop", world.inside("loop")).unwrap();
    let absolute = world.outside("secret").display().to_string();
    let through_root = format!("root{absolute}");
    for path in [
        "../outside/secret",
        "../../../outside/secret",
        "a/../../../../outside/secret",
        "..",
        ".",
        "",
        "/",
        "/etc/passwd",
        &absolute,
        "//etc/passwd",
        "..\\outside",
        "a\0b",
        "a\nb",
        "%2e%2e/%2e%2e",
        "file",
        "relative",
        "folder/secret",
        &through_root,
        "root/etc/passwd",
        "environ",
        "zero",
        "loop",
        "~/.ssh/id_rsa",
        "a//b",
        "./../x",
    ] {
        world.refused_by_all(path).await;
    }
    // Nothing is written there either; a link at a file's path is replaced.
    for path in ["../new", "/tmp/new", "folder/new", "folder/secret", "root/tmp/new"] {
        world.refusal(FileTool::Write, json!({ "path": path, "content": "x" })).await;
    }
    world.said(FileTool::Write, json!({ "path": "file", "content": "mine" })).await;
    assert_eq!(fs::read(world.outside("secret")).unwrap(), b"secret");
    assert_eq!(fs::read_dir(world.outside("")).unwrap().count(), 1);
    // Links that lead out are neither listed nor searched.
    assert_eq!(world.said(FileTool::List, json!({})).await, "file (4 bytes)\n");
    let found = world.said(FileTool::Search, json!({ "pattern": "secret|root:" })).await;
    assert_eq!(found, "Nothing was found.");
}

#[tokio::test]
async fn what_is_no_file_is_not_waited_for() {
    let world = World::start().await;
    assert!(Command::new("mkfifo").arg(world.inside("pipe")).status().unwrap().success());
    let _socket = std::os::unix::net::UnixListener::bind(world.inside("socket")).unwrap();
    fs::create_dir(world.inside("folder")).unwrap();
    for path in ["pipe", "socket", "folder"] {
        world.refused_by_all(path).await;
    }
    // Only root can make a device; where it works, the device is refused too.
    let made = Command::new("mknod").arg(world.inside("device")).args(["c", "1", "5"]).output();
    if made.is_ok_and(|made| made.status.success()) {
        world.refused_by_all("device").await;
    }
    world.said(FileTool::Search, json!({ "pattern": "x" })).await;
    // Writing replaces the pipe by a file.
    world.said(FileTool::Write, json!({ "path": "pipe", "content": "x" })).await;
    assert_eq!(world.said(FileTool::Read, json!({ "path": "pipe" })).await, "x");
}

#[tokio::test]
async fn large_and_binary_files_do_no_harm() {
    let world = World::start().await;
    let huge = fs::File::create(world.inside("huge")).unwrap();
    huge.set_len(50 * 1024 * 1024 * 1024).unwrap();
    let mut long = "行\n".repeat(100_000);
    fs::write(world.inside("long"), &long).unwrap();
    long.push_str(&"x".repeat(9 * 1024 * 1024));
    fs::write(world.inside("longer"), &long).unwrap();
    fs::write(world.inside("binary"), b"\x7fELF\0\x01").unwrap();
    fs::write(world.inside("latin"), b"caf\xe9 au lait").unwrap();
    fs::write(world.inside("picture"), b"\x89PNG\r\n\x1a\n").unwrap();
    for path in ["huge", "binary", "latin"] {
        let said = world.refusal(FileTool::Read, json!({ "path": path })).await;
        assert!(said.contains("is no text"), "{said}");
    }
    let edit = json!({ "path": "huge", "old": "a", "new": "b" });
    assert!(world.refusal(FileTool::Edit, edit).await.contains("too many"));
    let cut = world.said(FileTool::Read, json!({ "path": "long" })).await;
    assert!(cut.ends_with("of 400000 bytes]") && cut.len() < MAX_TEXT + 100, "{}", cut.len());
    let part = json!({ "path": "longer", "offset": 100_000, "limit": 1 });
    let part = world.said(FileTool::Read, part).await;
    assert!(part.starts_with("行\n\n[only the first"), "{part}");
    assert_eq!(world.said(FileTool::Read, json!({ "path": "picture" })).await, "<image/png>");
    let found = world.said(FileTool::Search, json!({ "pattern": "lait|ELF|行" })).await;
    assert!(found.starts_with("long:1: 行\n") && found.ends_with("[cut: there is more]\n"));
}

/// A link that replaces a file between two system calls leads nowhere.
#[tokio::test(flavor = "multi_thread")]
async fn a_link_that_comes_and_goes_is_never_followed_out() {
    let world = World::start().await;
    let (stop, path, secret) =
        (Arc::new(AtomicBool::new(false)), world.inside("turn"), world.outside("secret"));
    let folder = world.inside("deep");
    let outside = world.outside("");
    let swapping = std::thread::spawn({
        let stop = Arc::clone(&stop);
        move || {
            while !stop.load(Ordering::Relaxed) {
                let _ = fs::remove_file(&path);
                let _ = fs::write(&path, "mine");
                let _ = fs::remove_file(&path);
                let _ = symlink(&secret, &path);
                let _ = fs::remove_dir_all(&folder);
                let _ = fs::create_dir(&folder);
                let _ = fs::remove_dir(&folder);
                let _ = symlink(&outside, &folder);
                let _ = fs::remove_file(&folder);
            }
        }
    });
    for round in 0..300 {
        let read = answer_text(&world.call(FileTool::Read, json!({ "path": "turn" })).await);
        assert!(!read.contains("secret"), "{round}: {read}");
        let read = answer_text(&world.call(FileTool::Read, json!({ "path": "deep/secret" })).await);
        assert!(!read.starts_with("secret"), "{round}: {read}");
        let _ = world.call(FileTool::Write, json!({ "path": "deep/new", "content": "x" })).await;
        let found =
            answer_text(&world.call(FileTool::Search, json!({ "pattern": "secret" })).await);
        assert!(!found.contains(": secret"), "{round}: {found}");
    }
    stop.store(true, Ordering::Relaxed);
    swapping.join().unwrap();
    assert_eq!(fs::read_dir(world.outside("")).unwrap().count(), 1, "something was put there");
    assert_eq!(fs::read(world.outside("secret")).unwrap(), b"secret");
}

/// A pipe that replaces a file between `stat` and `open` is not read.
#[tokio::test(flavor = "multi_thread")]
async fn a_pipe_that_comes_and_goes_is_never_read() {
    let world = World::start().await;
    fs::write(world.outside("file"), "mine").unwrap();
    assert!(Command::new("mkfifo").arg(world.outside("pipe")).status().unwrap().success());
    let (stop, turn) = (Arc::new(AtomicBool::new(false)), world.inside("turn"));
    let (files, new) = ([world.outside("file"), world.outside("pipe")], world.outside("new"));
    let swapping = std::thread::spawn({
        let stop = Arc::clone(&stop);
        move || {
            // Each replaces the other in one step.
            for file in files.iter().cycle().take_while(|_| !stop.load(Ordering::Relaxed)) {
                fs::hard_link(file, &new).unwrap();
                fs::rename(&new, &turn).unwrap();
            }
        }
    });
    for round in 0..2_000 {
        let answer = world.call(FileTool::Read, json!({ "path": "turn" })).await;
        assert!(answer.is_error || answer_text(&answer) == "mine", "{round}: {answer:?}");
    }
    stop.store(true, Ordering::Relaxed);
    swapping.join().unwrap();
}
