use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::process::Command;

use shikiri_runtime::storage::StorageReservation;

use super::*;

/// Workspaces in a temporary folder, with a file outside that must stay unreachable.
struct World {
    folder: tempfile::TempDir,
    conversation: ConversationId,
    workspaces: Arc<SharedWorkspaceState>,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("outside")).unwrap();
        fs::write(folder.path().join("outside/secret"), "secret").unwrap();
        let world =
            Self { folder, conversation: "cnv_1".parse().unwrap(), workspaces: Arc::default() };
        WorkspaceFolder::make(&world.root(), &world.conversation).unwrap();
        world
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("workspaces")
    }

    /// A path in the agent's working folder.
    fn inside(&self, path: &str) -> PathBuf {
        self.root().join(self.conversation.as_str()).join(path)
    }

    fn outside(&self, path: &str) -> PathBuf {
        self.folder.path().join("outside").join(path)
    }

    fn open(&self) -> WorkspaceFolder {
        WorkspaceFolder::open(&self.root(), &self.conversation).unwrap()
    }

    async fn upload(&self, path: &str, max_workspace: u64) -> FileUpload {
        let to = UploadDestination {
            root: self.root(),
            conversation: self.conversation.clone(),
            path: at(path),
            max_workspace,
            workspaces: Arc::clone(&self.workspaces),
        };
        let permit = Arc::clone(&self.workspaces.uploads).acquire_owned().await.unwrap();
        FileUpload::start(to, StorageReservation::unlimited(), permit).await.unwrap()
    }

    async fn put(&self, path: &str, bytes: &[u8]) -> Result<UploadedFile, AppError> {
        let mut upload = self.upload(path, 1_000).await;
        upload.write(bytes).await?;
        upload.finish().await
    }

    fn listed(&self) -> Vec<(String, u64)> {
        let files = self.open().survey().files;
        files.into_iter().map(|file| (file.path, file.size)).collect()
    }

    fn uploads(&self) -> usize {
        fs::read_dir(self.root().join(".uploads")).unwrap().count()
    }
}

fn at(path: &str) -> FilePath {
    FilePath::parse(path).unwrap()
}

fn refusal<T>(result: Result<T, FilesError>, path: &str) -> AppError {
    failed(&result.map(drop).unwrap_err(), &at(path))
}

#[tokio::test]
async fn no_link_leads_out_for_reading_writing_or_removing() {
    let world = World::new();
    symlink(world.outside("secret"), world.inside("file")).unwrap();
    symlink("../../outside/secret", world.inside("relative")).unwrap();
    symlink(world.outside(""), world.inside("folder")).unwrap();
    symlink("/", world.inside("root")).unwrap();
    fs::create_dir(world.inside("real")).unwrap();
    symlink("../folder", world.inside("real/again")).unwrap();
    let folder = world.open();
    let to_secret = format!("root{}", world.outside("secret").display());
    for path in ["file", "relative", "folder/secret", "real/again/secret", &to_secret] {
        let refused = refusal(folder.read(&at(path)), path);
        assert!(matches!(refused, AppError::Invalid { field: "path", .. }), "{path}: {refused}");
    }
    for path in ["folder/new", "folder/deep/new", "real/again/secret", "folder/secret"] {
        let refused = world.put(path, b"new").await.unwrap_err();
        assert!(matches!(refused, AppError::Invalid { field: "path", .. }), "{path}: {refused}");
        assert!(folder.remove(&at(path)).is_err(), "{path}");
    }
    // A link at a file's path is replaced; its target stays.
    world.put("file", b"mine").await.unwrap();
    folder.remove(&at("relative")).unwrap();
    assert_eq!(world.listed(), [("file".to_owned(), 4)]);
    assert_eq!(fs::read(world.outside("secret")).unwrap(), b"secret");
    assert_eq!(fs::read_dir(world.outside("")).unwrap().count(), 1);
}

/// An agent could exchange a link's target between our check and our access.
#[tokio::test]
async fn links_that_stay_inside_are_not_followed_either() {
    let world = World::new();
    world.put("real/file", b"text").await.unwrap();
    symlink("real", world.inside("other")).unwrap();
    symlink("real/file", world.inside("same")).unwrap();
    symlink("circle", world.inside("circle")).unwrap();
    symlink("..", world.inside("real/up")).unwrap();
    let folder = world.open();
    for path in ["other/file", "same", "circle", "circle/file", "real/up/nothing"] {
        let refused = refusal(folder.read(&at(path)), path);
        assert!(matches!(refused, AppError::Invalid { field: "path", .. }), "{path}: {refused:?}");
    }
    let refused = refusal(folder.read(&at("real/file/deeper")), "real/file/deeper");
    assert!(matches!(refused, AppError::NotNow(_)), "{refused:?}");
    assert_eq!(world.listed(), [("real/file".to_owned(), 4)]);
}

#[test]
fn a_link_in_the_place_of_a_workspace_is_not_followed() {
    let world = World::new();
    let other: ConversationId = "cnv_2".parse().unwrap();
    symlink("cnv_1", world.root().join("cnv_2")).unwrap();
    assert!(WorkspaceFolder::open(&world.root(), &other).is_err());
    assert!(WorkspaceFolder::make(&world.root(), &other).is_err());
}

#[test]
fn what_is_no_file_is_neither_read_nor_listed() {
    let world = World::new();
    let made = Command::new("mkfifo").arg(world.inside("pipe")).status().unwrap();
    assert!(made.success());
    let _socket = UnixListener::bind(world.inside("socket")).unwrap();
    fs::create_dir(world.inside("folder")).unwrap();
    fs::write(world.inside("a\nb"), "").unwrap();
    let folder = world.open();
    // Opening a pipe for reading would block until another process writes to it.
    for path in ["pipe", "socket", "folder", "missing"] {
        let refused = refusal(folder.read(&at(path)), path);
        assert!(matches!(refused, AppError::NotFound { .. }), "{path}: {refused:?}");
    }
    assert!(matches!(refusal(folder.remove(&at("folder")), "folder"), AppError::NotFound { .. }));
    assert_eq!(world.listed(), []);
    assert_eq!(folder.survey().count, 1, "the file whose name cannot be written");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_workspace_takes_what_replaces_and_no_more() {
    let world = World::new();
    let put = |path: &'static str, size: usize| {
        let world = &world;
        async move {
            let mut upload = world.upload(path, 100).await;
            upload.write(&vec![b'x'; size]).await.unwrap();
            upload.finish().await.map(|placed| placed.is_new)
        }
    };
    assert!(put("a", 60).await.unwrap());
    assert!(matches!(put("b", 41).await, Err(AppError::TooLarge(_))));
    assert!(!put("a", 100).await.unwrap());
    assert!(matches!(put("a", 101).await, Err(AppError::TooLarge(_))));
    assert!(!put("a", 10).await.unwrap());
    // Each upload would fit alone; of all of them, only nine fit.
    let mut uploads = Vec::new();
    for number in 0..MAX_UPLOADS {
        let mut upload = world.upload(&format!("b{number}"), 100).await;
        upload.write(&[b'x'; 10]).await.unwrap();
        uploads.push(upload);
    }
    let uploads = uploads.into_iter().map(|upload| tokio::spawn(upload.finish()));
    let placed = futures_util::future::join_all(uploads).await;
    assert_eq!(placed.iter().filter(|placed| placed.as_ref().unwrap().is_ok()).count(), 9);
    assert_eq!(world.open().survey().bytes, 100);
    assert_eq!(world.uploads(), 0);
}

#[tokio::test]
async fn an_upload_that_ends_early_leaves_nothing_and_one_that_was_killed_is_swept() {
    let world = World::new();
    let mut cut = world.upload("a", 100).await;
    cut.write(b"half").await.unwrap();
    let living = world.upload("b", 100).await;
    assert_eq!(world.uploads(), 2);
    drop(cut);
    assert_eq!((world.uploads(), world.listed()), (1, vec![]));
    // A file as a killed process leaves it: present and unlocked.
    fs::write(world.root().join(".uploads/old"), "half").unwrap();
    let next = world.upload("c", 100).await;
    assert_eq!(world.uploads(), 2, "the living one and the next");
    next.finish().await.unwrap();
    living.finish().await.unwrap();
    assert_eq!(world.listed(), [("b".to_owned(), 0), ("c".to_owned(), 0)]);
}

#[tokio::test]
async fn folders_come_with_their_first_file_and_go_with_their_last() {
    let world = World::new();
    world.put("a/b/c", b"1").await.unwrap();
    world.put("a/d", b"2").await.unwrap();
    // A file cannot be used as a folder, nor a folder as a file.
    for path in ["a", "a/b", "a/d/e"] {
        let refused = world.put(path, b"3").await.unwrap_err();
        assert!(matches!(refused, AppError::NotNow(_)), "{path}: {refused:?}");
    }
    let folder = world.open();
    folder.remove(&at("a/b/c")).unwrap();
    assert!(!world.inside("a/b").exists() && world.inside("a").exists());
    folder.remove(&at("a/d")).unwrap();
    assert!(!world.inside("a").exists());
    world.put("a", b"3").await.unwrap();
}

#[test]
fn an_agent_is_told_of_the_first_files_only() {
    let file = |number: usize| FileRecord {
        path: format!("資料/{number:03}.md"),
        size: 7,
        modified_at: shikiri_model::time::Timestamp::default(),
    };
    let empty = workspace_prompt(Path::new("/w/cnv_1"), &[]);
    assert!(empty.contains("/w/cnv_1") && empty.ends_with("no files yet."), "{empty}");
    let many = workspace_prompt(Path::new("/w/cnv_1"), &(0..203).map(file).collect::<Vec<_>>());
    assert!(many.contains("- 資料/000.md (7 bytes)\n- 資料/001.md (7 bytes)\n"), "{many}");
    assert!(many.ends_with("- 資料/199.md (7 bytes)\n- and 3 more"), "{many}");
}

#[tokio::test]
async fn a_workspace_goes_as_a_whole_and_takes_nothing_along() {
    let world = World::new();
    world.put("a/b", b"1").await.unwrap();
    symlink(world.outside(""), world.inside("a/folder")).unwrap();
    remove_tree(&world.inside("")).unwrap();
    remove_tree(&world.inside("")).unwrap();
    assert!(!world.inside("").exists());
    assert_eq!(fs::read(world.outside("secret")).unwrap(), b"secret");
}
