package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const manifest = `apiVersion: v1
kind: Pod
metadata: {name: pod-%03d, labels: {app: density}}
spec:
  nodeName: ` + node + `
  terminationGracePeriodSeconds: 1
  containers:
    - name: main
      image: everynode.io/demo:v1
      args: [http]
      readinessProbe: {httpGet: {path: /ready, port: 8080}}
      resources: {requests: {cpu: 1m, memory: 1Mi}}
---
`

// node is the one node.
const node = "node-1"

// cluster is a running cluster of one node.
type cluster struct{ binary, dir string }

// kubectl runs kubectl and returns what it prints; in is its input.
func (c cluster) kubectl(ctx context.Context, in string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, c.binary, append([]string{"kubectl", "--data-dir", c.dir}, args...)...)
	cmd.Stdin = strings.NewReader(in)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// start creates the pods with these numbers and waits until all are ready.
func (c cluster) start(ctx context.Context, from, to int) (time.Duration, error) {
	var all strings.Builder
	for i := from; i < to; i++ {
		fmt.Fprintf(&all, manifest, i)
	}
	begin := time.Now()
	if _, err := c.kubectl(ctx, all.String(), "apply", "-f", "-"); err != nil {
		return 0, err
	}
	err := c.allReady(ctx)
	return time.Since(begin), err
}

// allReady waits until all pods are ready, as far as the API knows.
func (c cluster) allReady(ctx context.Context) error {
	_, err := c.kubectl(
		ctx, "", "wait", "pods", "-l", "app=density", "--for=condition=Ready", "--timeout="+patience.String(),
	)
	return err
}

// running are the processes of the cluster that are measured or ended.
type running struct {
	Plan   struct{ ID string }
	Server process
	Nodes  map[string]struct{ Init, Containerd, Agent process }
}

type process struct{ PID int }

// processes reads which there are now.
func (c cluster) processes() (r running, err error) {
	data, err := os.ReadFile(filepath.Join(c.dir, "local.json"))
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(data, &r)
}
