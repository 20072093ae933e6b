//! A coordinator over a Redis in a container, which the daemon stops and starts again elsewhere. The image is made of this
//! machine's own server: no registry is asked.

use anyhow::{Context, Result, ensure};
use skein_tests::link::Link;
use skein_tests::up::{Folder, Up};
use testcontainers::core::{IntoContainerPort, WaitFor};
use testcontainers::runners::AsyncRunner;
use testcontainers::{ContainerAsync, GenericImage, ImageExt};
use tokio::process::Command;

const PORT: u16 = 6379;

/// The server with its libraries, and nothing else.
const PACK: &str = r#"
set -eu
server=$(command -v redis-server)
tar --create --dereference --absolute-names --file - "$server" $(ldd "$server" | grep --only-matching '/[^ ]*') |
  docker import - "$1"
"#;

/// Removed from the daemon when it is dropped.
struct Image(String);

impl Image {
    async fn pack() -> Result<Self> {
        let name = format!("skein-test-redis-{}", std::process::id());
        let packed = Command::new("sh").args(["-c", PACK, "sh", &name]).output().await?;
        let said = String::from_utf8_lossy(&packed.stderr);
        ensure!(
            packed.status.success(),
            "no image can be made (apt-get install docker.io redis-server): {said}"
        );
        Ok(Self(name))
    }

    async fn start(&self) -> Result<ContainerAsync<GenericImage>> {
        let settings = ["--appendonly", "yes", "--appendfsync", "always", "--protected-mode", "no"];
        let image = GenericImage::new(self.0.as_str(), "latest")
            .with_exposed_port(PORT.tcp())
            .with_entrypoint("redis-server")
            .with_wait_for(WaitFor::message_on_stdout("Ready to accept connections"))
            .with_cmd(settings);
        image.start().await.context("redis-server does not start in a container")
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let _ = std::process::Command::new("docker").args(["rmi", "--force", &self.0]).output();
    }
}

async fn address(container: &ContainerAsync<GenericImage>) -> Result<String> {
    Ok(format!("{}:{}", container.get_host().await?, container.get_host_port_ipv4(PORT).await?))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_over_a_redis_in_a_container_is_there_when_that_is_back() -> Result<()> {
    let image = Image::pack().await?;
    let redis = image.start().await?;
    let way = Link::port().await?;
    way.leads_to(&address(&redis).await?);
    let node = Up::serve_in(Folder::new()?, &["--redis", &way.redis(), "--node-addr", "127.0.0.1:0"]).await?;
    node.skein(&["task", "create", "before"]).await?;
    // It is killed at once, and gets another port.
    redis.stop_with_timeout(Some(0)).await?;
    redis.start().await?;
    way.leads_to(&address(&redis).await?);
    let create = async || Ok(node.skein(&["task", "create", "after"]).await.ok());
    node.until("a task can be created again", create).await?;
    let listed = node.skein(&["tasks", "list"]).await?;
    ensure!(listed.contains("before") && listed.contains("after"), "{listed}");
    redis.rm().await?;
    Ok(())
}
