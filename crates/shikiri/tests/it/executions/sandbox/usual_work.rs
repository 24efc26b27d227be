//! What people let Claude Code do all day still works inside.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn sandbox_lets_git_node_and_python_work() {
    for user in ServerUser::all() {
        let world = World::start(user).await;
        let told = world
            .bash(
                "set -e; mkdir project; cd project; git init -q .; git config user.email a@b.c; \
                 git config user.name n; echo x > f; git add f; git commit -qm first; \
                 git log --oneline | wc -l; \
                 node -e 'const os = require(\"os\"); os.userInfo(); console.log(\"node\", \
                   require(\"child_process\").execSync(\"echo child\").toString().trim())'; \
                 printf '{\"name\":\"p\",\"version\":\"1.0.0\",\"scripts\":{\"hi\":\"echo npm\"}}' > package.json; \
                 npm --offline run --silent hi; \
                 mkdir dep; printf '{\"name\":\"dep\",\"version\":\"1.2.3\"}' > dep/package.json; \
                 echo 'module.exports = \"from a tarball\"' > dep/index.js; \
                 npm pack --silent ./dep; npm install --offline --silent ./dep-1.2.3.tgz; \
                 node -p 'require(\"dep\")'; \
                 PATH=/usr/bin:$PATH python3 -c 'import multiprocessing, tempfile, socket; \
                   s = socket.create_server((\"127.0.0.1\", 0)); \
                   c = socket.create_connection(s.getsockname()); \
                   print(\"python\", len(tempfile.mkdtemp()) > 0)'; \
                 mkdir many; cd many; seq 1 10000 | xargs touch; ls | wc -l",
            )
            .await;
        let wanted = "1\nnode child\nnpm\ndep-1.2.3.tgz\nfrom a tarball\npython True\n10000\n";
        assert_eq!(told, wanted, "{user:?}");
        // The next turn finds it as it was.
        assert_eq!(world.bash("cat project/f; ls project/many | wc -l").await, "x\n10000\n");
    }
}

/// A toolchain in the closed home of the server's user: its programs are in `PATH`, and what they
/// need lies beside them.
#[tokio::test(flavor = "multi_thread")]
async fn sandbox_lets_cargo_build() {
    let world = World::start(ServerUser::Same).await;
    let told = world
        .bash(
            "command -v cargo cc > /dev/null || { echo none; exit; }; set -e; \
             cargo new --quiet --vcs none hello; cd hello; cargo build --offline --quiet; \
             ./target/debug/hello; ls -d $HOME/.cargo; touch ${RUSTUP_HOME:-/usr}/x || echo closed",
        )
        .await;
    if told == "none\n" {
        eprintln!("SKIPPED: cargo in a run: there is no cargo in PATH, or no cc");
        return;
    }
    assert!(told.starts_with("Hello, world!\n"), "{told}");
    assert!(told.ends_with("closed\n"), "{told}");
}
