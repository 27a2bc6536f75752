"""Two hosts made on one machine: network and UTS namespaces joined by a pair of virtual Ethernet devices, a token bucket
on each limiting it to 1 Gbit/s, and the command line of mpiexec that starts ranks in them. Needs root and iproute2."""

import itertools
import os
import shutil
import subprocess

ADDRESSES = ("10.213.7.1", "10.213.7.2")
_count = itertools.count()


class NotPossible(Exception):
    """Why there can't be hosts here."""


class TwoHosts:
    def __init__(self, scratch, rate="1gbit"):
        for tool in ("ip", "tc", "unshare"):
            if not shutil.which(tool):
                raise NotPossible(f"there is no {tool} here")
        prefix = f"ms{os.getpid() % 100000}n{next(_count)}"
        self.names = [prefix + "a", prefix + "b"]
        try:
            for name in self.names:
                self._do("ip", "netns", "add", name)
            self._do("ip", "link", "add", "eth0", "netns", self.names[0], "type", "veth",
                     "peer", "name", "eth0", "netns", self.names[1])
            for name, address in zip(self.names, ADDRESSES):
                self._do("ip", "-n", name, "addr", "add", address + "/24", "dev", "eth0")
                self._do("ip", "-n", name, "link", "set", "lo", "up")
                self._do("ip", "-n", name, "link", "set", "eth0", "up")
                self._do("tc", "-n", name, "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", rate,
                         "burst", "256kb", "latency", "50ms")
            # MPI sees no device before the kernel says that the link is up.
            self._wait_until_up()
        except NotPossible:
            self.close()
            raise
        # What mpiexec calls in place of ssh: [options] HOST COMMAND...
        self.launcher = scratch / "enter_host"
        self.launcher.write_text(f"""#!/bin/sh
while [ "${{1#-}}" != "$1" ]; do shift; done
host=$1; shift
case $host in {ADDRESSES[0]}) name={self.names[0]};; *) name={self.names[1]};; esac
exec ip netns exec $name unshare --uts sh -c "hostname host-$host; exec $*"
""")
        self.launcher.chmod(0o755)

    def _do(self, *command):
        done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode != 0:
            raise NotPossible(f"namespaces are not allowed here: {' '.join(command)}: {done.stdout.strip()}")
        return done.stdout

    def _wait_until_up(self):
        for name in self.names:
            for _ in range(1000):
                if "state UP" in self._do("ip", "-n", name, "link", "show", "eth0"):
                    break
            else:
                raise NotPossible(f"eth0 of {name} does not come up")

    def close(self):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def command(self, mpiexec, ranks, *program):
        """The command that runs a program on so many ranks, dealt to the hosts in turn."""
        inner = [str(mpiexec), "-launcher", "ssh", "-launcher-exec", str(self.launcher), "-localhost", ADDRESSES[0],
                 "-hosts", ",".join(ADDRESSES), "-n", str(ranks), *map(str, program)]
        quoted = " ".join("'" + word.replace("'", "'\\''") + "'" for word in inner)
        return ["ip", "netns", "exec", self.names[0], "unshare", "--uts", "sh", "-c",
                f"hostname host-{ADDRESSES[0]}; exec {quoted}"]

    @staticmethod
    def environment(base):
        return {**base, "UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "eth0"}

    def bytes_sent(self, host):
        """By a host so far."""
        words = self._do("tc", "-s", "-n", self.names[host], "qdisc", "show", "dev", "eth0").split()
        return int(words[words.index("Sent") + 1])
