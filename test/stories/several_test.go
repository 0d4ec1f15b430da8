package stories

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

var membersAtLength = flag.Bool("members", false, "play the long stories of several servers, too")

// several is a cluster of three servers, each in a network namespace of its own.
type several struct{ *localCluster }

func newSeveral(t *testing.T) several {
	t.Helper()
	return several{newLocal(t)}
}

var threeServers = []string{"server-1", "server-2", "server-3"}

// pid is the process of a server.
func (c several) pid(server string) int {
	c.t.Helper()
	raw, err := os.ReadFile(filepath.Join(c.dir, "local.json"))
	var s struct {
		Server struct{ PID int }
		Others map[string]struct{ PID int }
	}
	if err == nil {
		err = json.Unmarshal(raw, &s)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	if server == threeServers[0] {
		return s.Server.PID
	}
	return s.Others[server].PID
}

// ip is the address of a server.
func (c several) ip(server string) string {
	c.t.Helper()
	raw, err := os.ReadFile(filepath.Join(c.dir, "local.json"))
	var s struct {
		Plan struct{ Servers []struct{ Name, IP string } }
	}
	if err == nil {
		err = json.Unmarshal(raw, &s)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	for _, one := range s.Plan.Servers {
		if one.Name == server {
			return one.IP
		}
	}
	c.t.Fatalf("there is no %s", server)
	return ""
}

// standing is the line of a server in what "everynode members" says.
func (c several) standing(server string) string {
	out, err := c.command("members").Output()
	if err != nil {
		return ""
	}
	return regexp.MustCompile(`(?m)^` + server + ` .*$`).FindString(string(out))
}

// leader is the server that leads the databases.
func (c several) leader() (name string) {
	c.t.Helper()
	c.soon("a server leads", func() bool {
		for _, name = range threeServers {
			if strings.Contains(c.standing(name), "leader") {
				return true
			}
		}
		return false
	})
	return name
}

// whole waits until all servers take part.
func (c several) whole() {
	c.t.Helper()
	for _, server := range threeServers {
		c.soon(server+" takes part", func() bool { return strings.Contains(c.standing(server), "Ready") })
		c.soon("the endpoints have "+server, func() bool { return strings.Contains(c.endpoints(), c.ip(server)) })
	}
}

// endpoints are the addresses to which the Service of the API leads.
func (c several) endpoints() string {
	out, _ := c.command("kubectl", "get", "endpointslices", "kubernetes", "-o", "jsonpath={.endpoints[*].addresses[0]}").Output()
	return string(out)
}

// works waits until something can be written, and prints how long that took.
func (c several) works(after string) {
	c.t.Helper()
	begin := time.Now()
	c.soon("kubectl works after "+after, func() bool {
		out, err := c.command("kubectl", "annotate", "--overwrite", "--request-timeout", "5s", "namespace", "default", fmt.Sprintf("example.com/at=%d", begin.UnixNano())).CombinedOutput()
		if err != nil && testing.Verbose() {
			c.t.Logf("after %s, %.1f s: %s", after, time.Since(begin).Seconds(), bytes.TrimSpace(out))
		}
		return err == nil
	})
	c.t.Logf("after %s kubectl works again within %.1f s", after, time.Since(begin).Seconds())
}

// cable takes the cable of a server out, or plugs it in.
func (c several) cable(server, state string) {
	c.t.Helper()
	out, err := exec.Command("ip", "-n", "everynode-"+c.id(), "link", "set", strings.ReplaceAll(server, "-", ""), state).CombinedOutput()
	if err != nil {
		c.t.Fatalf("set the link of %s %s: %v: %s", server, state, err, out)
	}
}

// fromNode runs a command in the network of a node.
func (c several) fromNode(node string, args ...string) (string, error) {
	cmd := exec.Command("nsenter", append([]string{"--net=/run/netns/everynode-" + c.id() + "-" + node}, args...)...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// inCluster asks the API from a node at the Service's address, as pods do, each time on a
// connection of its own.
func (c several) inCluster(node string, times int) error {
	for range times {
		if out, err := c.fromNode(node, c.binary, "kubectl", "--data-dir", c.dir, "--server", "https://10.96.0.1", "--request-timeout", "10s", "get", "--raw", "/readyz"); err != nil || out != "ok" {
			return fmt.Errorf("%w: %s", err, out)
		}
	}
	return nil
}

// rules are what the node's packet filter says.
func (c several) rules(node string) string {
	c.t.Helper()
	out, err := c.fromNode(node, "nft", "list", "ruleset")
	if err != nil {
		c.t.Fatalf("list the rules of %s: %v: %s", node, err, out)
	}
	return out
}

// followed waits until a server that is lost is in no rule of a node, and asks then.
func (c several) followed(lost, node string) {
	c.t.Helper()
	begin, ip := time.Now(), c.ip(lost)
	c.soon("the endpoints lose "+lost, func() bool {
		now := c.endpoints()
		return now != "" && !strings.Contains(now, ip)
	})
	c.t.Logf("the endpoints lost %s after %.1f s", lost, time.Since(begin).Seconds())
	leads := regexp.MustCompile(`\b` + regexp.QuoteMeta(ip) + `\b`)
	c.soon("the rules of "+node+" lose "+lost, func() bool { return !leads.MatchString(c.rules(node)) })
	c.t.Logf("the rules of %s lost it after %.1f s", node, time.Since(begin).Seconds())
	// Connections are spread by chance: of so many, one would go to the lost server.
	if err := c.inCluster(node, 12); err != nil {
		c.t.Errorf("without %s, a connection from %s to the Service of the API failed: %v", lost, node, err)
	}
}

// change begins a rollout of a daemon of two nodes, and changed waits for its end.
func (c several) change(version string) {
	c.t.Helper()
	c.do("kubectl", "-n", "kube-system", "set", "image", "ds/log-agent", "log-agent=everynode.io/demo:"+version)
}

func (c several) changed(version string) {
	c.t.Helper()
	c.soon("the rollout of "+version+" ends", func() bool {
		out, err := c.command("kubectl", "-n", "kube-system", "get", "ds", "log-agent", "-o",
			"jsonpath={.metadata.generation} {.status.observedGeneration} {.status.updatedNumberScheduled} {.status.numberAvailable} {.spec.template.spec.containers[0].image}").Output()
		f := strings.Fields(string(out))
		return err == nil && len(f) == 5 && f[0] == f[1] && f[2] == "2" && f[3] == "2" && strings.HasSuffix(f[4], ":"+version)
	})
}

func (c several) begin() (containers string) {
	c.t.Helper()
	c.do("up", "--control-planes", "3", "--detach")
	example, err := filepath.Abs("../../examples/log-agent.yaml")
	if err != nil {
		c.t.Fatal(err)
	}
	c.do("kubectl", "apply", "-f", example)
	containers = c.daemon()
	c.changed("v1")
	return containers
}

// TestOfThreeServersOneIsLost takes the cable of a server out, and kills the one that leads
// while a change is under way.
func TestOfThreeServersOneIsLost(t *testing.T) {
	t.Parallel()
	c := newSeveral(t)
	before := c.begin()
	// The first one is that to which the address of the kubeconfig, and of the nodes, leads.
	lost := threeServers[0]
	c.cable(lost, "down")
	c.works("the cable of " + lost + " was taken out")
	c.followed(lost, "node-1")
	c.cable(lost, "up")
	c.whole()

	leader := c.leader()
	c.change("v2")
	old := c.pid(leader)
	if err := syscall.Kill(old, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	c.works("the leader, " + leader + ", was killed in the middle of a change")
	c.changed("v2")
	c.soon(leader+" is started again", func() bool { return c.pid(leader) != old })
	c.whole()
	if now := c.containers(); now != before {
		t.Errorf("before the losses the containers of a daemon that nobody changed were\n%sand now they are\n%s", before, now)
	}
	refused(t, c.command("up", "--control-planes", "5", "--detach"), "everynode down first")
}

func atLength(t *testing.T) {
	t.Helper()
	if !*membersAtLength {
		t.Skip("takes minutes; make test-members plays it")
	}
}

// TestThreeServersAtLength has one server become three, and loses each in other ways.
func TestThreeServersAtLength(t *testing.T) {
	atLength(t)
	t.Parallel()
	c := newSeveral(t)
	c.do("up", "--detach")
	c.daemon()
	c.do("down")
	before := c.begin() // with what the one server had
	c.whole()

	leader := c.leader()
	c.change("v2")
	c.cable(leader, "down")
	c.works("the cable of the leader, " + leader + ", was taken out in the middle of a change")
	c.changed("v2")
	c.followed(leader, "node-1")
	c.cable(leader, "up")
	c.whole()

	leader = c.leader()
	c.change("v1")
	pid := c.pid(leader)
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	c.works("the leader, " + leader + ", was stopped in the middle of a change")
	c.changed("v1")
	c.followed(leader, "node-1")
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	c.whole()

	// The one to which a node is connected, without the gate between.
	out, err := c.fromNode("node-1", "ss", "-Htn", "state", "established")
	if err != nil {
		t.Fatal(err)
	}
	for _, server := range threeServers {
		if strings.Contains(out, c.ip(server)+":"+c.port) {
			t.Logf("node-1 is connected to %s", server)
			c.cable(server, "down")
			c.followed(server, "node-1")
			c.cable(server, "up")
			c.whole()
			break
		}
	}
	if now := c.containers(); now != before {
		t.Errorf("before the losses the containers were\n%sand now they are\n%s", before, now)
	}
}

// TestOfThreeServersOneCannotStart has a minority that is lost for good not keep the others.
func TestOfThreeServersOneCannotStart(t *testing.T) {
	atLength(t)
	t.Parallel()
	c := newSeveral(t)
	c.do("up", "--control-planes", "3", "--detach")
	c.whole()
	c.do("down")
	if err := os.RemoveAll(filepath.Join(c.dir, "servers", "server-2", "etcd", "member", "snap")); err != nil {
		t.Fatal(err)
	}
	if text := c.do("up", "--detach"); !strings.Contains(text, "server-2 ended") || !strings.Contains(text, "2 of 3 servers ready") {
		t.Errorf("with a broken server up said\n%s", text)
	}
	c.works("a server could not start")
	c.do("members", "remove", "server-2")
	if err := os.RemoveAll(filepath.Join(c.dir, "servers", "server-2")); err != nil {
		t.Fatal(err)
	}
	c.whole() // it joins again by itself
}

func TestKillOfThreeAtAnyMoment(t *testing.T) {
	atLength(t)
	t.Parallel()
	c := newSeveral(t)
	for i, d := range []time.Duration{500 * time.Millisecond, 3 * time.Second, 5 * time.Second, 7 * time.Second, 9 * time.Second, 12 * time.Second, 15 * time.Second} {
		cmd := c.command("up", "--control-planes", "3")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(d)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if i%3 == 0 { // else the next up has to go on with what is there
			c.do("down", "--purge")
			c.gone()
		}
	}
	c.do("up", "--control-planes", "3", "--detach")
	c.whole()
	c.daemon()
}
