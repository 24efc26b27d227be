//! Sockets of this machine, of any kind.

use std::io::Read as _;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};

use super::*;

/// Says it to everybody who connects, for as long as the tests run.
macro_rules! say_to_all {
    ($listener:expr) => {{
        let listener = $listener;
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let _ = std::io::Write::write_all(&mut stream.unwrap(), b"canary-0815\n");
            }
        });
    }};
}
pub(super) use say_to_all;

const CONNECTS: &str = r#"
import socket, sys
def attempt(family, address):
    try:
        s = socket.socket(family, socket.SOCK_STREAM)
        s.settimeout(5)
        s.connect(address)
        print(s.recv(100).decode())
    except Exception as error:
        print("no:", error)
port, path, name = int(sys.argv[1]), sys.argv[2], sys.argv[3]
attempt(socket.AF_INET, ("127.0.0.1", port))
attempt(socket.AF_UNIX, path)
attempt(socket.AF_UNIX, "\0" + name)
print("over")
"#;

#[tokio::test(flavor = "multi_thread")]
async fn sandbox_keeps_out_sockets_of_the_machine() {
    for user in ServerUser::all() {
        let world = World::start(user).await;
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = tcp.local_addr().unwrap().port();
        // Not where a program lies: that folder can be read.
        let folder = tempfile::tempdir().unwrap();
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(folder.path(), open).unwrap();
        let path = folder.path().join("socket");
        let unix = UnixListener::bind(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).unwrap();
        let name = format!("shikiri-test-{}-{user:?}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let abstract_socket = UnixListener::bind_addr(&address).unwrap();
        say_to_all!(tcp);
        say_to_all!(unix);
        say_to_all!(abstract_socket);
        // The test itself can.
        let mut heard = String::new();
        std::net::TcpStream::connect(("127.0.0.1", port))
            .unwrap()
            .read_to_string(&mut heard)
            .unwrap();
        assert_eq!(heard, "canary-0815\n");
        let server = world.app.port();
        let path = path.display();
        let told = world
            .bash(&format!(
                "cat > c.py <<'E'\n{CONNECTS}\nE\nPATH=/usr/bin:$PATH python3 c.py {port} {path} '{name}'; \
                 (exec 3<>/dev/tcp/127.0.0.1/{port}; head -n 1 <&3); \
                 (exec 3<>/dev/tcp/127.0.0.1/{server} && echo canary); \
                 ls /var/run/docker.sock /run/dbus 2>/dev/null; echo over"
            ))
            .await;
        assert!(told.ends_with("over\n"), "{user:?}: {told}");
        assert!(!told.contains("canary"), "{user:?}: {told}");
    }
}
