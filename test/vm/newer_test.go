package vm

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/everynode/everynode/internal/images"
)

// ownUsers is a pod with users of its own, and volumes of which each has files that only its root may read.
func ownUsers(pod string) string {
	return `apiVersion: v1
kind: Pod
metadata: {name: ` + pod + `, namespace: newer, labels: {app: own}}
spec:
  hostUsers: false
  nodeName: ` + name + `
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: ` + images.DemoV1 + `
    args: [sleep]
    readinessProbe: {exec: {command: [version]}}
    volumeMounts:
    - {name: own, mountPath: /own}
    - {name: secret, mountPath: /secret, readOnly: true}
    - {name: config, mountPath: /config, readOnly: true}
    - {name: pod, mountPath: /pod}
  - name: user
    image: ` + images.DemoV1 + `
    args: [sleep]
    securityContext: {runAsUser: 1000, runAsGroup: 2000, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}, seccompProfile: {type: RuntimeDefault}}
    volumeMounts: [{name: own, mountPath: /own}]
  volumes:
  - {name: own, emptyDir: {}}
  - {name: secret, secret: {secretName: words, defaultMode: 0400}}
  - {name: config, configMap: {name: words, defaultMode: 0400}}
  - {name: pod, downwardAPI: {defaultMode: 0400, items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}}
---
`
}

const words = `apiVersion: v1
kind: Namespace
metadata: {name: newer}
---
apiVersion: v1
kind: Secret
metadata: {name: words, namespace: newer}
stringData: {word: secret}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: words, namespace: newer}
data: {word: config}
---
`

// readers have what is mounted below /mounts: one for reading with all that is mounted below, one without, and one that takes
// what it can get; and the files of an image.
const readers = `apiVersion: v1
kind: Pod
metadata: {name: readers, namespace: newer}
spec:
  nodeName: ` + name + `
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: ` + images.DemoV1 + `
    args: [sleep]
    volumeMounts:
    - {name: mounts, mountPath: /all, readOnly: true, recursiveReadOnly: Enabled}
    - {name: mounts, mountPath: /possible, readOnly: true, recursiveReadOnly: IfPossible}
    - {name: mounts, mountPath: /top, readOnly: true}
    - {name: image, mountPath: /image}
  volumes:
  - {name: mounts, hostPath: {path: /var/lib/mounts}}
  - {name: image, image: {reference: "` + images.DemoV2 + `", pullPolicy: IfNotPresent}}
`

// refusedByOld asks for what Debian's containerd cannot do. The pods wait, and say for what.
func (s *story) refusedByOld(t *testing.T) {
	s.machine.run(t, "mkdir -p /var/lib/mounts/below && mount -t tmpfs below /var/lib/mounts/below")
	s.apply(t, words+ownUsers("own-1")+ownUsers("own-2")+readers)
	for pod, want := range map[string]string{
		"own-1":   "runtime does not support user namespaces (containerd 2.0 with runc 1.2 or newer does)",
		"own-2":   "runtime does not support user namespaces",
		"readers": "image volumes need containerd 2.1.0 or newer",
	} {
		s.waits(t, "newer", pod, want)
	}
	s.after(t)
}

// waits wants a word in a pod's events.
func (s *story) waits(t *testing.T, namespace, pod, want string) {
	t.Helper()
	await(t, pod+" says what it waits for", func(ctx context.Context) error {
		list, err := s.client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + pod})
		if err != nil {
			return err
		}
		var all []string
		for _, e := range list.Items {
			all = append(all, e.Reason+": "+e.Message)
		}
		if text := strings.Join(all, "\n"); !strings.Contains(text, want) {
			return fmt.Errorf("its events are\n%s", text)
		}
		return nil
	})
}

// containerdReplaced puts the newest containerd and runc into Debian's place. No container may notice.
func (s *story) containerdReplaced(t *testing.T) {
	m := s.machine
	m.run(t, `install -m 755 /tools/runtime/containerd /tools/runtime/containerd-shim-runc-v2 /tools/runtime/ctr /usr/local/bin/
install -m 755 /tools/runtime/runc /usr/local/sbin/
mkdir -p /etc/systemd/system/containerd.service.d
printf '[Service]\nExecStart=\nExecStart=/usr/local/bin/containerd\n' >/etc/systemd/system/containerd.service.d/newer.conf
systemctl daemon-reload
systemctl restart containerd`)
	s.node(t, "the node tells of the newer containerd", func(node *corev1.Node) error {
		if runs := node.Status.NodeInfo.ContainerRuntimeVersion; !strings.HasPrefix(runs, "containerd://v2.") {
			return fmt.Errorf("it is %s", runs)
		}
		for _, h := range node.Status.RuntimeHandlers {
			if h.Name == "" && h.Features != nil && *h.Features.UserNamespaces && *h.Features.RecursiveReadOnlyMounts {
				return ready(corev1.ConditionTrue)(node)
			}
		}
		return fmt.Errorf("its runtime handlers are %+v", node.Status.RuntimeHandlers)
	})
	s.after(t)
}

// in runs a program in one container of a pod that asked for something new.
func (s *story) in(t *testing.T, pod, container string, words ...string) string {
	t.Helper()
	return s.exec(t, append([]string{"--namespace", "newer", "--container", container, pod, "--"}, words...)...)
}

var userMap = regexp.MustCompile(`^\s*0\s+(\d+)\s+65536\s*$`)

// ownUsersRun wants pods whose root is nobody outside.
func (s *story) ownUsersRun(t *testing.T) {
	if kernel := version.MustParseGeneric(s.machine.run(t, "uname -r")); kernel.LessThan(version.MustParseGeneric("6.3")) {
		// Volumes in memory, as that of each token, cannot be shown to other users by such a kernel.
		s.waits(t, "newer", "own-1", "maybe the filesystem used doesn't support idmap mounts on this kernel")
		t.Skipf("pods with users of their own need Linux 6.3 or newer, this is %s: a pod was seen to wait, and to say so", kernel)
	}
	first := map[string]string{}
	for _, pod := range []string{"own-1", "own-2"} {
		for _, kind := range []string{"uid", "gid"} {
			text := s.in(t, pod, "main", "cat", "/proc/self/"+kind+"_map")
			found := userMap.FindStringSubmatch(text)
			if found == nil || found[1] == "0" {
				t.Fatalf("the %s map of %s is %q", kind, pod, text)
			}
			if before, had := first[pod]; had && before != found[1] {
				t.Errorf("%s has groups from %s on, users from %s on", pod, found[1], before)
			}
			first[pod] = found[1]
		}
		for file, want := range map[string]string{"/secret/word": "secret", "/config/word": "config", "/pod/name": pod, "/etc/hostname": pod} {
			if got := s.in(t, pod, "main", "cat", file); got != want {
				t.Errorf("%s reads %q in %s, want %q", pod, got, file, want)
			}
		}
		if token := s.in(t, pod, "main", "cat", "/var/run/secrets/kubernetes.io/serviceaccount/token"); !strings.HasPrefix(token, "ey") {
			t.Errorf("the token of %s is %q", pod, token)
		}
		s.in(t, pod, "main", "write", "/own/root", pod)
		s.in(t, pod, "user", "write", "/own/user", pod)
		if got := s.in(t, pod, "main", "cat", "/own/user"); got != pod {
			t.Errorf("the containers of %s do not share a volume: %q", pod, got)
		}
		uid := s.cluster.run(t, "kubectl", "--namespace", "newer", "get", "pod", pod, "--output", "jsonpath={.metadata.uid}")
		// On the disk, files belong to whom the pod sees, so that the volume can be another pod's next time.
		if owners := s.machine.run(t, "cd $(find /var/lib -xdev -path '*"+uid+"*' -name root -type f -printf %h) && stat -c %u:%g root user"); owners != "0:0\n1000:2000" {
			t.Errorf("the files of %s belong to %q", pod, owners)
		}
		// Outside, its processes are of users that nobody is. In systemd's names of cgroups a dash is something else.
		if users := s.machine.run(t, "grep -sl pod"+strings.ReplaceAll(uid, "-", "[-_]")+" /proc/[0-9]*/cgroup | cut -d/ -f3 | while read p; do stat -c %u /proc/$p 2>/dev/null; done | sort -u | tr '\\n' ' '"); !allOwn(users, first[pod]) {
			t.Errorf("the processes of %s are of users %s, its part begins at %s", pod, users, first[pod])
		}
	}
	if first["own-1"] == first["own-2"] {
		t.Errorf("two pods have the same users, from %s on", first["own-1"])
	}
	s.machine.run(t, "systemctl restart everynode-agent")
	s.after(t)
	if text := s.in(t, "own-1", "main", "cat", "/proc/self/uid_map"); !strings.Contains(text, first["own-1"]) {
		t.Errorf("after the agent was restarted the map is %q", text)
	}
}

// allOwn says whether there are users, and all are of the part that begins there.
func allOwn(users, first string) bool {
	var begin int
	if _, err := fmt.Sscan(first, &begin); err != nil {
		return false
	}
	all := strings.Fields(users)
	for _, user := range all {
		var n int
		if _, err := fmt.Sscan(user, &n); err != nil || n < begin || n >= begin+65536 {
			return false
		}
	}
	return len(all) > 0
}

// readersRun wants mounts that are for reading as far as they were asked to be, and the files of an image.
func (s *story) readersRun(t *testing.T) {
	write := func(path string) string {
		var said string
		await(t, "the pod of mounts is reached", func(ctx context.Context) error {
			_, err := s.cluster.try(ctx, "", "kubectl", "--namespace", "newer", "exec", "readers", "--", "write", path, "here")
			said = ""
			if err == nil || strings.Contains(err.Error(), "read-only file system") {
				if err != nil {
					said = "read-only"
				}
				return nil
			}
			return err
		})
		return said
	}
	for path, want := range map[string]string{
		"/all/x": "read-only", "/all/below/x": "read-only", "/possible/below/x": "read-only", "/top/x": "read-only",
		// Whoever did not ask for it finds what is mounted below as it is.
		"/top/below/x": "",
		"/image/x":     "read-only",
	} {
		if got := write(path); got != want {
			t.Errorf("writing %s: %q, want %q", path, got, want)
		}
	}
	if files := s.in(t, "readers", "main", "ls", "/image/bin"); !strings.Contains(files, "demo") {
		t.Errorf("the image's files are %q", files)
	}
	status := s.cluster.run(t, "kubectl", "--namespace", "newer", "get", "pod", "readers", "--output",
		`jsonpath={range .status.containerStatuses[0].volumeMounts[*]}{.mountPath}={.recursiveReadOnly} {end}`)
	for _, want := range []string{"/all=Enabled ", "/possible=Enabled ", "/top=Disabled "} {
		if !strings.Contains(status, want) {
			t.Errorf("the pod's status says %q, want %q", status, want)
		}
	}
}
