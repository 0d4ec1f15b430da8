package vm

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/images"
	"github.com/everynode/everynode/internal/testenv/eventually"
)

var (
	folder   = flag.String("machine", "", "folder that hack/emulated-machine.sh has filled; make vm does")
	packages = flag.String("packages", "", "folder with old.deb and new.deb, packages of the same program")
	programs = flag.String("programs", "", "folder with the program for the machine")
	runtime  = flag.String("runtime", "", "folder that hack/newest-runtime.sh has filled")
)

func await(t *testing.T, what string, check func(ctx context.Context) error) {
	t.Helper()
	eventually.Nil(t, patience, what, check)
}

// story is what is known so far.
type story struct {
	*machine
	*cluster
	// pods are the daemons as they live, processes the numbers of their processes.
	pods      []life
	processes string
}

// processesOf prints the numbers of the daemons' processes.
const processesOf = "pgrep --full '^/bin/demo (http|metrics-agent)$'"

// TestMachine goes the whole way of a machine, from a fresh installation.
func TestMachine(t *testing.T) {
	if *folder == "" {
		t.Skip("make vm runs this, with a machine")
	}
	command(t, "ip", "link", "set", "lo", "up")
	s := &story{machine: newMachine(t, *folder, tools(t)), cluster: newCluster(t)}
	for _, step := range []struct {
		name string
		do   func(*testing.T)
	}{
		{"the package is installed", s.installed},
		{"the machine joins", s.joins},
		{"daemons run", s.daemons},
		{"the services are what they say", s.services},
		{"the agent is restarted", s.agentRestarted},
		{"the agent is replaced by a newer one", s.agentReplaced},
		{"containerd is restarted", s.containerdRestarted},
		{"a network's plugins are found", s.pluginBrought},
		{"the package is removed, and comes back", s.removed},
		{"the network is cut", s.networkCut},
		{"cgroups are left to systemd", s.systemdCgroups},
		{"the machine is rebooted", s.rebooted},
		{"the machine loses its power", s.powerLost},
		{"what Debian's containerd cannot do waits", s.refusedByOld},
		{"containerd is replaced by a newer one", s.containerdReplaced},
		{"pods have users of their own", s.ownUsersRun},
		{"mounts are for reading, and images are volumes", s.readersRun},
	} {
		if !t.Run(step.name, step.do) {
			s.tell(t)
			return
		}
	}
}

// tools makes a folder of what is put into the machine.
func tools(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for from, to := range map[string]string{*packages: "packages", *programs: "programs", *runtime: "runtime"} {
		if err := os.CopyFS(filepath.Join(dir, to), os.DirFS(from)); err != nil {
			t.Fatal(err)
		}
	}
	archive, err := images.Load()
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(filepath.Join(dir, "images.tar"))
	if err == nil {
		_, err = archive.WriteTo(file)
	}
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
	return dir
}

// tell says what the machine knows about a failure.
func (s *story) tell(t *testing.T) {
	for _, line := range []string{
		"journalctl --no-pager --lines 60 --unit everynode-agent --output short-precise",
		"journalctl --no-pager --lines 30 --unit containerd --output cat",
		"systemctl --no-pager --failed; ctr -n k8s.io containers ls",
	} {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		out, err := s.machine.try(ctx, line)
		cancel()
		t.Logf("%s: %v\n%s", line, err, out)
	}
}

// installed follows docs/nodes.md. What the package recommends comes from apt's own store.
func (s *story) installed(t *testing.T) {
	m := s.machine
	if state := m.run(t, "systemctl is-system-running --wait || systemctl --failed --no-pager"); state != "running" {
		t.Errorf("before anything was installed the machine is %s", state)
	}
	m.run(t, "DEBIAN_FRONTEND=noninteractive apt-get install --yes /tools/packages/old.deb")
	for _, service := range []string{"everynode-agent", "everynode-server"} {
		if is := m.run(t, fmt.Sprintf("systemctl is-enabled %s || true; systemctl is-active %[1]s || true", service)); is != "disabled\ninactive" {
			t.Errorf("after the installation %s is %s", service, is)
		}
	}
	if is := m.run(t, "systemctl is-active containerd"); is != "active" {
		t.Errorf("containerd is %s", is)
	}
}

// joins configures the machine as docs/nodes.md says. It has no registry: it is given its images.
func (s *story) joins(t *testing.T) {
	m := s.machine
	m.run(t, `sed -i '/plugins."io.containerd.grpc.v1.cri"\]$/a sandbox_image = "`+images.Pause+`"' /etc/containerd/config.toml && grep sandbox_image /etc/containerd/config.toml`)
	m.run(t, "systemctl restart containerd; ctr -n k8s.io images import /tools/images.tar")
	token := s.cluster.run(t, "token", "create", "--ttl", "1h", "--data-dir", s.cluster.dir)
	m.run(t, fmt.Sprintf("sed -i 's,^EVERYNODE_SERVER=.*,EVERYNODE_SERVER=https://%s:6443,; s,^EVERYNODE_TOKEN=.*,EVERYNODE_TOKEN=%s,' /etc/default/everynode-agent", here, token))
	m.run(t, "systemctl enable --now everynode-agent")
	s.node(t, "the node is ready", readyIn(m.boot(t)))
	// The token was for the first start.
	m.run(t, "sed -i 's,^EVERYNODE_TOKEN=.*,EVERYNODE_TOKEN=,' /etc/default/everynode-agent")
}

const daemons = `apiVersion: apps/v1
kind: DaemonSet
metadata: {name: watcher, namespace: default}
spec:
  selector: {matchLabels: {app: watcher}}
  template:
    metadata: {labels: {app: watcher}}
    spec:
      containers:
      - name: watcher
        image: ` + images.DemoV1 + `
        args: [http]
        ports: [{containerPort: 8080, hostPort: 8080}]
        readinessProbe: {httpGet: {path: /ready, port: 8080}}
        resources: {requests: {cpu: 50m, memory: 32Mi}, limits: {memory: 100Mi, cpu: 500m}}
        volumeMounts:
        - {name: mounts, mountPath: /mounts, mountPropagation: HostToContainer}
        - {name: own, mountPath: /own}
      volumes:
      - {name: mounts, hostPath: {path: /var/lib/mounts, type: DirectoryOrCreate}}
      - {name: own, emptyDir: {}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: network, namespace: default}
spec:
  selector: {matchLabels: {app: network}}
  template:
    metadata: {labels: {app: network}}
    spec:
      hostNetwork: true
      containers:
      - name: network
        image: ` + images.DemoV1 + `
        args: [metrics-agent]
        # The node's own address goes with the cable.
        livenessProbe: {httpGet: {host: 127.0.0.1, path: /healthz, port: 9100}}
        securityContext: {privileged: true}
`

func (s *story) daemons(t *testing.T) {
	s.apply(t, daemons)
	s.pods = s.lives(t, 2)
	s.processes = s.machine.run(t, processesOf)
	watcher := "daemonset/watcher"
	if out := s.exec(t, watcher, "--", "version"); out != "v1" {
		t.Errorf("the daemon is %q", out)
	}
	await(t, "the daemon answers at the machine's port", func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+there+":8080/", nil)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		return response.Body.Close()
	})
	// Its limits are the kernel's.
	s.limits(t)
}

// limits wants a daemon's limits in the cgroups of version 2, its own and its pod's.
func (s *story) limits(t *testing.T) {
	t.Helper()
	if out := s.machine.run(t, "cd /sys/fs/cgroup"+s.group(t)+" && cat memory.max cpu.max ../memory.max"); out != "104857600\n50000 100000\n104857600" {
		t.Errorf("the daemon's limits are %q", out)
	}
}

// group is a daemon's cgroup.
func (s *story) group(t *testing.T) string {
	t.Helper()
	return s.machine.run(t, "cut -d: -f3 /proc/$(pgrep --full '^/bin/demo http$')/cgroup")
}

// systemdCgroups has containerd leave cgroups to systemd, as Kubernetes' documentation asks for.
func (s *story) systemdCgroups(t *testing.T) {
	m := s.machine
	m.run(t, `cat >>/etc/containerd/config.toml <<END
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
    SystemdCgroup = true
END
systemctl restart containerd`)
	s.node(t, "the node says what is wrong", func(node *corev1.Node) error {
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionFalse && strings.Contains(c.Message, "drain the node and restart the agent") {
				return nil
			}
		}
		return fmt.Errorf("its conditions are %+v", node.Status.Conditions)
	})
	m.run(t, "systemctl restart everynode-agent")
	s.node(t, "the node is ready with cgroups of systemd", ready(corev1.ConditionTrue))
	if now := m.run(t, processesOf); now != s.processes {
		t.Errorf("the daemons' processes are %q, before %q", now, s.processes)
	}
	// Who was there before keeps its cgroup until it is started again.
	old := s.pods
	s.cluster.run(t, "kubectl", "delete", "pods", "--all", "--wait")
	s.pods = s.lives(t, len(old))
	s.processes = m.run(t, processesOf)
	if group := s.group(t); !strings.HasPrefix(group, "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod") || !strings.HasSuffix(group, ".scope") {
		t.Errorf("the daemon's cgroup is %s", group)
	}
	s.limits(t)
	m.run(t, "systemctl daemon-reload")
	s.limits(t)
	s.agentRestarted(t)
	if left := m.run(t, "find /sys/fs/cgroup/everynode -name 'pod*' 2>/dev/null || true"); left != "" {
		t.Errorf("cgroups are left of the pods of before: %s", left)
	}
}

// services looks at what systemd made of the units.
func (s *story) services(t *testing.T) {
	m := s.machine
	if score := m.run(t, "cat /proc/$(systemctl show --property MainPID --value everynode-agent)/oom_score_adj"); score != "-999" {
		t.Errorf("the agent's OOM score is adjusted by %s", score)
	}
	// What the machine mounts is seen by a daemon that asked for that.
	m.run(t, "mkdir -p /var/lib/mounts/late && mount -t tmpfs late /var/lib/mounts/late && echo seen >/var/lib/mounts/late/file")
	if out := s.exec(t, "daemonset/watcher", "--", "cat", "/mounts/late/file"); out != "seen" {
		t.Errorf("the daemon reads %q", out)
	}
	m.run(t, "umount /var/lib/mounts/late")
	// systemd looks at its own cgroups again, and leaves those of pods as they are.
	m.run(t, "systemctl daemon-reload; systemctl daemon-reexec")
	s.limits(t)
	if failed := m.run(t, "systemctl --failed --no-legend --plain --no-pager"); failed != "" {
		t.Errorf("failed units: %s", failed)
	}
}

// pid is the agent's.
func (s *story) pid(t *testing.T) string {
	t.Helper()
	return s.machine.run(t, "systemctl show --property MainPID --value everynode-agent")
}

func (s *story) agentRestarted(t *testing.T) {
	before := s.pid(t)
	s.machine.run(t, "systemctl restart everynode-agent")
	if s.pid(t) == before {
		t.Error("the agent is the same process")
	}
	s.after(t)
	// It is killed, and systemd starts it again.
	before = s.pid(t)
	s.machine.run(t, "kill -KILL "+before)
	s.machine.await(t, "systemd starts the agent again", func(context.Context) error {
		if now := s.pid(t); now == before || now == "0" {
			return errors.New("it does not run")
		}
		return nil
	})
	s.after(t)
}

// again wants the same pods, with containers that were started once more.
func (s *story) again(t *testing.T) {
	t.Helper()
	s.pods = s.restarted(t, s.pods)
	s.processes = s.machine.run(t, processesOf)
}

// after wants a daemon's containers to be the same after something that is none of theirs, and the agent to act.
func (s *story) after(t *testing.T) {
	t.Helper()
	s.apply(t, oneShot)
	await(t, "a new pod runs", func(ctx context.Context) error {
		out, err := s.cluster.try(ctx, "", "kubectl", "logs", "once")
		if err == nil && out != "done" {
			err = fmt.Errorf("it says %q", out)
		}
		return err
	})
	s.cluster.run(t, "kubectl", "delete", "pod", "once", "--wait")
	if now := s.lives(t, len(s.pods)); !slices.Equal(now, s.pods) {
		t.Errorf("containers changed:\n%+v\nbefore:\n%+v", now, s.pods)
	}
	if now := s.machine.run(t, processesOf); now != s.processes {
		t.Errorf("the daemons' processes are %q, before %q", now, s.processes)
	}
}

const oneShot = `apiVersion: v1
kind: Pod
metadata: {name: once, namespace: default}
spec:
  restartPolicy: Never
  tolerations: [{operator: Exists}]
  nodeName: ` + name + `
  terminationGracePeriodSeconds: 1
  containers:
  - {name: once, image: "` + images.DemoV1 + `", command: [echo, done]}
`

func (s *story) agentReplaced(t *testing.T) {
	before := s.pid(t)
	s.machine.run(t, "DEBIAN_FRONTEND=noninteractive apt-get install --yes /tools/packages/new.deb")
	if s.pid(t) == before {
		t.Error("after an upgrade the agent is the same process")
	}
	if url := s.machine.run(t, "sed -n 's/^EVERYNODE_SERVER=//p' /etc/default/everynode-agent"); !strings.Contains(url, here) {
		t.Errorf("after an upgrade the server is %q", url)
	}
	s.after(t)
}

func (s *story) containerdRestarted(t *testing.T) {
	s.machine.run(t, "systemctl restart containerd")
	s.after(t)
	s.machine.run(t, "systemctl kill --signal KILL --kill-whom main containerd")
	s.machine.await(t, "systemd starts containerd again", func(ctx context.Context) error {
		_, err := s.machine.try(ctx, "systemctl is-active containerd")
		return err
	})
	s.after(t)
}

func (s *story) networkCut(t *testing.T) {
	m := s.machine
	m.plug(t, false)
	s.node(t, "the node is silent", ready(corev1.ConditionUnknown))
	if now := m.run(t, processesOf); now != s.processes {
		t.Errorf("without a network the daemons' processes are %q, before %q", now, s.processes)
	}
	m.plug(t, true)
	s.node(t, "the node is back", ready(corev1.ConditionTrue))
	s.after(t)
}

func (s *story) rebooted(t *testing.T) {
	s.machine.reboot(t)
	s.node(t, "the node is ready after a reboot", readyIn(s.machine.boot(t)))
	s.again(t)
	s.limits(t)
	s.after(t)
	// The agent ended as it was told to, and in time.
	if log := s.machine.run(t, "journalctl --no-pager --boot -1 --output cat --unit everynode-agent | tail -n 10"); !strings.Contains(log, "everynode-agent.service: Deactivated successfully") {
		t.Errorf("at its end the agent, and systemd about it, said:\n%s", log)
	}
}

func (s *story) powerLost(t *testing.T) {
	m := s.machine
	m.Kill()
	m.on(t)
	s.node(t, "the node is ready after it lost its power", readyIn(m.boot(t)))
	s.again(t)
	s.after(t)
	if failed := m.run(t, "systemctl --failed --no-legend --plain --no-pager"); failed != "" {
		t.Errorf("failed units: %s", failed)
	}
}

// removed takes the package away, which leaves containers and data, and puts it back.
func (s *story) removed(t *testing.T) {
	m := s.machine
	m.run(t, "DEBIAN_FRONTEND=noninteractive apt-get remove --yes everynode")
	s.node(t, "the node is silent without its agent", ready(corev1.ConditionUnknown))
	if now := m.run(t, processesOf); now != s.processes {
		t.Errorf("without the package the daemons' processes are %q, before %q", now, s.processes)
	}
	m.run(t, "DEBIAN_FRONTEND=noninteractive apt-get install --yes /tools/packages/new.deb && systemctl enable --now everynode-agent")
	s.node(t, "the node is back with its agent", ready(corev1.ConditionTrue))
	s.after(t)
}
