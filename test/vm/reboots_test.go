package vm

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/images"
	podfacts "github.com/everynode/everynode/internal/objects/pod"
)

var reboots = flag.Int("reboots", 3, "how often a machine is rebooted whose daemons start and end in an order")

// collected is the file on the machine's disk to which the log agent brings what it reads.
const collected = "/var/lib/collected/all.log"

// ordered are daemons of three groups, and others: pods, a daemon that no group lists, and a pod that the cluster needs.
// All but the log agent say a last line when they end.
var ordered = `apiVersion: everynode.io/v1alpha1
kind: NodeStartup
metadata: {name: machines}
spec:
  groups:
  - daemonSets: [{namespace: kube-system, name: cni}]
  - daemonSets: [{namespace: kube-system, name: storage}]
  - daemonSets: [{namespace: kube-system, name: log-agent}]
` + talker("DaemonSet", "kube-system", "cni", "") + talker("DaemonSet", "kube-system", "storage", "") +
	talker("DaemonSet", "default", "unlisted", "") + talker("Deployment", "default", "work", "") +
	talker("Deployment", "kube-system", "needed", "priorityClassName: system-cluster-critical") + `---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: log-agent, namespace: kube-system}
spec:
  selector: {matchLabels: {app: log-agent}}
  template:
    metadata: {labels: {app: log-agent}}
    spec:
      containers:
      - name: main
        image: ` + images.DemoV1 + `
        args: [log-agent, --dir, /var/log/pods, --to, ` + collected + `]
        readinessProbe: {exec: {command: [/bin/demo, "true"]}}
        volumeMounts:
        - {name: logs, mountPath: /var/log/pods, readOnly: true}
        - {name: collected, mountPath: /var/lib/collected}
      volumes:
      - {name: logs, hostPath: {path: /var/log/pods}}
      - {name: collected, hostPath: {path: /var/lib/collected, type: DirectoryOrCreate}}
`

// talker is the manifest of a workload whose pods say a line each second, and a last one.
func talker(kind, namespace, name, more string) string {
	return fmt.Sprintf(`---
apiVersion: apps/v1
kind: %[1]s
metadata: {name: %[2]s, namespace: %[3]s}
spec:
  selector: {matchLabels: {app: %[2]s}}
  template:
    metadata: {labels: {app: %[2]s}}
    spec:
      %[4]s
      containers:
      - name: main
        image: %[5]s
        args: [talk]
        # They are ready a while after their start, as what has something to do.
        readinessProbe: {exec: {command: [/bin/demo, "true"]}, initialDelaySeconds: 3, periodSeconds: 1}
        env: [{name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
`, kind, name, namespace, more, images.DemoV1)
}

// The workloads in the order in which their pods start: each group after the one before.
var startsAfter = [][]string{{"cni"}, {"storage"}, {"log-agent"}, {"unlisted", "work", "needed"}}

// TestReboots reboots a machine again and again. What its pods say last reaches the log agent each time, and its
// daemons start in their order.
func TestReboots(t *testing.T) {
	if *folder == "" {
		t.Skip("make vm runs this, with a machine")
	}
	command(t, "ip", "link", "set", "lo", "up")
	s := &story{machine: newMachine(t, *folder, tools(t)), cluster: newCluster(t)}
	s.installed(t)
	// systemd gives the agent the time that the agent gives its pods.
	s.machine.run(t, `mkdir -p /etc/systemd/system/everynode-agent.service.d
printf '[Service]\nTimeoutStopSec=150\n' >/etc/systemd/system/everynode-agent.service.d/shutdown.conf
systemctl daemon-reload
sed -i 's,^EVERYNODE_AGENT_FLAGS=.*,EVERYNODE_AGENT_FLAGS="--shutdown-grace-period 120s --shutdown-grace-period-critical-pods 60s",' /etc/default/everynode-agent`)
	s.apply(t, ordered)
	s.joins(t)
	before := s.inOrder(t, nil)
	for n := range *reboots {
		if !t.Run(fmt.Sprintf("reboot %d", n+1), func(t *testing.T) { before = s.rebootedInOrder(t, before) }) {
			s.tell(t)
			return
		}
	}
}

// rebootedInOrder reboots the machine, and wants to find what the pods of before said last, and others that started in
// their order.
func (s *story) rebootedInOrder(t *testing.T, before map[string]*corev1.Pod) (after map[string]*corev1.Pod) {
	s.machine.reboot(t)
	s.node(t, "the node is ready after a reboot", readyIn(s.machine.boot(t)))
	after = s.inOrder(t, before)
	log := s.machine.run(t, "grep -F 'the last of' "+collected+" || true")
	for _, name := range startsAfter[len(startsAfter)-1] {
		pod := before[name].Name
		if !strings.Contains(log, " "+pod+": the last of ") {
			t.Errorf("the last line of %s did not reach the log agent, which has of last lines:\n%s", pod, log)
		}
	}
	return after
}

// inOrder waits until a pod of each workload is ready in a container that was not there before, and wants that they
// started in their order.
func (s *story) inOrder(t *testing.T, before map[string]*corev1.Pod) (pods map[string]*corev1.Pod) {
	t.Helper()
	await(t, "a pod of each workload is ready", func(ctx context.Context) error {
		all, err := s.client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: "app"})
		if err != nil {
			return err
		}
		pods = map[string]*corev1.Pod{}
		for i := range all.Items {
			if pod := &all.Items[i]; podfacts.IsReady(pod) {
				pods[pod.Labels["app"]] = pod
			}
		}
		for _, name := range slices.Concat(startsAfter...) {
			is, was := pods[name], before[name]
			if is == nil || was != nil && container(is).ContainerID == container(was).ContainerID {
				return fmt.Errorf("none of %s is ready", name)
			}
		}
		return nil
	})
	var ready time.Time // all of the groups before
	for _, group := range startsAfter {
		latest := ready
		for _, name := range group {
			if state := container(pods[name]).State.Running; state == nil || state.StartedAt.Time.Before(ready) {
				t.Errorf("%s is %+v, and all of the groups before were ready at %v", pods[name].Name, state, ready)
			}
			if at, _ := podfacts.ReadySince(pods[name]); at.After(latest) {
				latest = at
			}
		}
		ready = latest
	}
	return pods
}

func container(pod *corev1.Pod) *corev1.ContainerStatus { return &pod.Status.ContainerStatuses[0] }
