//! The API of Docker and Podman, over HTTP on a Unix socket.

use std::io::{Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;
use socket2::{Domain, SockAddr, Socket, Type};

use super::answer::{Answer, Name};

/// More bytes than an answer has.
const MOST: usize = 1 << 20;

/// Asks for a container.
pub(super) fn container(socket: &Path, id: &str, limit: Duration) -> Result<Answer, String> {
    match get(socket, &format!("/containers/{id}/json"), limit)? {
        None => Ok(Answer::Unknown),
        Some(container) => named(&container).map(Answer::Known),
    }
}

/// Asks Podman for a pod.
pub(super) fn pod(socket: &Path, id: &str, limit: Duration) -> Result<Answer, String> {
    match get(socket, &format!("/v4.0.0/libpod/pods/{id}/json"), limit)? {
        None => Ok(Answer::Unknown),
        Some(pod) => {
            let name = text(&pod, "/Name").ok_or("a pod has no name")?;
            Name::of(name, of_map(pod.pointer("/Labels"))).map(Answer::Known)
        }
    }
}

/// Returns the name that Nomad's environment gives a container, else the container's own; the image, and the container's labels.
fn named(container: &Value) -> Result<Name, String> {
    let variables = container.pointer("/Config/Env").and_then(Value::as_array);
    let nomad = |name: &str| {
        let of = |variable: &Value| {
            Some(variable.as_str()?.strip_prefix(name)?.strip_prefix('=')?.to_owned())
        };
        variables.into_iter().flatten().find_map(of)
    };
    let parts = ["NOMAD_JOB_NAME", "NOMAD_TASK_NAME", "NOMAD_SHORT_ALLOC_ID"].map(nomad);
    let name = match parts {
        [Some(job), Some(task), Some(allocation)] => {
            let namespace = nomad("NOMAD_NAMESPACE").filter(|namespace| namespace != "default");
            let namespace = namespace.map(|namespace| namespace + "-").unwrap_or_default();
            format!("{namespace}{job}-{task}-{allocation}")
        }
        _ => text(container, "/Name")
            .ok_or("a container has no name")?
            .trim_start_matches('/')
            .to_owned(),
    };
    let image =
        text(container, "/Config/Image").map(|image| ("image".to_owned(), image.to_owned()));
    Name::of(&name, image.into_iter().chain(of_map(container.pointer("/Config/Labels"))))
}

fn text<'a>(value: &'a Value, at: &str) -> Option<&'a str> {
    value.pointer(at)?.as_str()
}

fn of_map(labels: Option<&Value>) -> impl Iterator<Item = (String, String)> {
    let labels = labels.and_then(Value::as_object).into_iter().flatten();
    labels.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
}

/// Returns the JSON at a path of the API; `None` if there is no such thing.
fn get(socket: &Path, path: &str, limit: Duration) -> Result<Option<Value>, String> {
    let answer = exchange(socket, path, Instant::now() + limit);
    let answer = answer.map_err(|error| format!("{}: {error}", socket.display()))?;
    let malformed = || format!("{}: no answer of HTTP to {path}", socket.display());
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n").ok_or_else(malformed)?;
    let (head, body) = answer.split_at(end);
    let status = str::from_utf8(head).ok().and_then(|head| head.strip_prefix("HTTP/1."));
    let status = status.and_then(|head| head.split(' ').nth(1)?.parse::<u16>().ok());
    match status.ok_or_else(malformed)? {
        200 => {
            let value = serde_json::from_slice(body);
            value.map(Some).map_err(|error| format!("{}: {path}: {error}", socket.display()))
        }
        404 => Ok(None),
        status => Err(format!("{}: status {status} for {path}", socket.display())),
    }
}

/// Sends one request. With version 1.0 the answer is not cut into chunks, and ends with the connection.
fn exchange(socket: &Path, path: &str, until: Instant) -> std::io::Result<Vec<u8>> {
    let left = || match until.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(std::io::Error::from(std::io::ErrorKind::TimedOut)),
        left => Ok(left),
    };
    let mut stream = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    stream.connect_timeout(&SockAddr::unix(socket)?, left()?)?;
    stream.set_write_timeout(Some(left()?))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    let (mut answer, mut buffer) = (Vec::new(), [0; 8192]);
    while answer.len() < MOST {
        stream.set_read_timeout(Some(left()?))?;
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(answer),
            Ok(len) => answer.extend_from_slice(buffer.get(..len).unwrap_or_default()),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Err(std::io::Error::other("the answer is too long"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_container_is_named_by_nomad_or_by_itself() {
        let container = |env: &[&str]| {
            let name = named(&json!({
                "Name": "/web-1",
                "Config": { "Image": "w:1", "Env": env, "Labels": { "b": "2", "a": "1", "n": 3 } }
            }));
            name.unwrap()
        };
        let Name { name, labels } = container(&["PATH=/bin"]);
        let labels: Vec<_> = labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!((name.as_str(), labels.join(" ").as_str()), ("web-1", "image=w:1 a=1 b=2"));
        let mut env = vec!["NOMAD_JOB_NAME=j", "NOMAD_TASK_NAME=t", "NOMAD_SHORT_ALLOC_ID=1a"];
        assert_eq!(container(&env).name, "j-t-1a");
        env.push("NOMAD_NAMESPACE=n");
        assert_eq!(container(&env).name, "n-j-t-1a");
        named(&json!({})).unwrap_err();
        named(&json!({ "Name": "/" })).unwrap_err();
    }
}
