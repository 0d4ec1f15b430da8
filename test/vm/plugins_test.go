package vm

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/images"
)

// wired is a pod in a network of which one plugin is to be brought.
const wired = `apiVersion: v1
kind: Namespace
metadata: {name: wires}
---
apiVersion: v1
kind: Pod
metadata: {name: wired, namespace: wires}
spec:
  nodeName: ` + name + `
  tolerations: [{operator: Exists}]
  terminationGracePeriodSeconds: 1
  containers:
  - {name: main, image: "` + images.DemoV1 + `", args: [sleep]}
`

// bringer puts a plugin where network daemons put theirs. The plugin is a copy of one that only hands on what it is told, and the
// program that copies is the machine's.
const bringer = `apiVersion: v1
kind: Pod
metadata: {name: bringer, namespace: wires}
spec:
  nodeName: ` + name + `
  hostNetwork: true
  restartPolicy: Never
  tolerations: [{operator: Exists}]
  containers:
  - name: main
    image: ` + images.DemoV1 + `
    command: [/usr/bin/install, --mode=755, /usr/lib/cni/tuning, /opt/cni/bin/brought]
    volumeMounts:
    - {name: usr, mountPath: /usr, readOnly: true}
    - {name: lib, mountPath: /lib, readOnly: true}
    - {name: lib64, mountPath: /lib64, readOnly: true}
    - {name: plugins, mountPath: /opt/cni/bin}
  volumes:
  - {name: usr, hostPath: {path: /usr}}
  - {name: lib, hostPath: {path: /usr/lib}}
  - {name: lib64, hostPath: {path: /usr/lib64}}
  - {name: plugins, hostPath: {path: /opt/cni/bin}}
`

// pluginBrought has a daemon bring a plugin into /opt/cni/bin, which Debian's containerd finds after what docs/nodes.md says.
func (s *story) pluginBrought(t *testing.T) {
	m := s.machine
	// The network is the agent's own, with one plugin more.
	m.run(t, `cd /etc/cni/net.d
sed 's/^  \]$/  , {"type": "brought"}]/' 10-everynode.conflist >20-brought.conflist
grep brought 20-brought.conflist
sed -i 's,^EVERYNODE_AGENT_FLAGS=.*,EVERYNODE_AGENT_FLAGS="--pod-network none",' /etc/default/everynode-agent
systemctl restart everynode-agent`)
	m.await(t, "the agent leaves the network to others", func(ctx context.Context) error {
		_, err := m.try(ctx, "test ! -e /etc/cni/net.d/10-everynode.conflist")
		return err
	})
	s.apply(t, wired)
	s.waits(t, "wires", "wired", `failed to find plugin "brought" in path [/usr/lib/cni]`)

	m.run(t, "mkdir -p /opt/cni\nln -s /usr/lib/cni /opt/cni/bin")
	s.apply(t, bringer)
	s.phase(t, "bringer", corev1.PodSucceeded)
	m.run(t, "test -x /usr/lib/cni/brought")
	s.phase(t, "wired", corev1.PodRunning)

	// Who takes pods out of a network needs its plugins too.
	s.cluster.run(t, "kubectl", "--namespace", "wires", "delete", "pods", "--all", "--wait")
	m.run(t, `sed -i 's,^EVERYNODE_AGENT_FLAGS=.*,EVERYNODE_AGENT_FLAGS="",' /etc/default/everynode-agent; systemctl restart everynode-agent`)
	m.await(t, "the agent's own network is back", func(ctx context.Context) error {
		_, err := m.try(ctx, "test -e /etc/cni/net.d/10-everynode.conflist")
		return err
	})
	m.run(t, "rm /etc/cni/net.d/20-brought.conflist /usr/lib/cni/brought")
	s.node(t, "the node is ready with its own network", ready(corev1.ConditionTrue))
	s.after(t)
}

// phase waits until a pod of that step is so far.
func (s *story) phase(t *testing.T, pod string, want corev1.PodPhase) {
	t.Helper()
	await(t, fmt.Sprintf("%s is %s", pod, want), func(ctx context.Context) error {
		is, err := s.client.CoreV1().Pods("wires").Get(ctx, pod, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if is.Status.Phase != want {
			return fmt.Errorf("its status is %+v", is.Status)
		}
		return nil
	})
}
