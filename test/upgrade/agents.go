package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/everynode/everynode/internal/local/nodeinit"
)

// installOnNodes has the agents be the installed program when they next start: each node has the file mounted that was
// there when it was made.
func (f *fleet) installOnNodes() error {
	if !f.real {
		return nil
	}
	now, err := f.processes()
	if errors.Is(err, fs.ErrNotExist) {
		return nil // there are no nodes yet
	}
	for name, node := range now.Nodes {
		done := make(chan error)
		go func() {
			runtime.LockOSThread() // for good: the thread ends in the node's namespace
			done <- f.mountIn(node.Init.PID)
		}()
		if mounted := <-done; mounted != nil {
			err = errors.Join(err, fmt.Errorf("install the program on %s: %w", name, mounted))
		}
	}
	return err
}

// mountIn mounts the program in the place of the one before, as a process sees files. It takes the thread there.
func (f *fleet) mountIn(pid int) error {
	files, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", pid))
	if err != nil {
		return err
	}
	defer func() { _ = files.Close() }() // it is only read
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("leave what the threads share: %w", err)
	}
	if err := unix.Setns(int(files.Fd()), unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("enter the node: %w", err)
	}
	if err := unix.Unmount(nodeinit.Executable, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount %s: %w", nodeinit.Executable, err)
	}
	if err := unix.Mount(f.program, nodeinit.Executable, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s: %w", nodeinit.Executable, err)
	}
	return nil
}

// runs fails while a process has another program than the one that is installed.
func (f *fleet) runs(pid int) error {
	is, err := os.Stat(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		return err
	}
	wanted, err := os.Stat(f.program)
	if err == nil && !os.SameFile(is, wanted) {
		err = errors.New("it runs another program than the one that is installed")
	}
	return err
}

// What pods show that were made with one content, and were given another one as they ran.
const (
	madeWith  = "/one/token"
	givenThen = "/two/token"
)

// playAgents has agents of other programs take over pods that were given content as they ran. The one of before shows
// the same. One that knows no content shows what the pods were made with, as the guide says, but where they were
// replaced before. Nobody's container notices.
func playAgents(p programs) error {
	if os.Geteuid() != 0 {
		fmt.Println("  skipped: real nodes need root")
		return nil
	}
	if p.old == "" || p.older == "" {
		return errors.New("this scenario needs other programs: see -old and -older")
	}
	return with(p, p.new, size{"containerd", 1, 3}, func(f *fleet) error {
		if err := f.giveContent(); err != nil {
			return err
		}
		for _, step := range []struct{ what, program, shows string }{
			{"agents of the release before", p.old, givenThen},
			{"agents of this program", p.new, givenThen},
			{"agents that know no content", p.older, madeWith},
			{"agents of this program again", p.new, givenThen},
		} {
			if err := f.takeOver(step.what, step.program, step.shows); err != nil {
				return err
			}
		}
		if _, err := f.kubectl(f.new, "rollout", "restart", "ds/agent"); err != nil {
			return err
		}
		if _, err := f.kubectl(f.new, "rollout", "status", "ds/agent", "--timeout=3m"); err != nil {
			return err
		}
		return f.takeOver("agents that know no content, after the pods were replaced", p.older, givenThen)
	})
}

// takeOver has other agents run the pods, which have written all volumes anew when these show the pods' new label.
func (f *fleet) takeOver(what, program, shows string) error {
	pods := func() (string, error) {
		return f.kubectl(f.new, "get", "pods", "--sort-by=.spec.nodeName", "-o", "jsonpath="+containers)
	}
	before, err := pods()
	if err != nil {
		return err
	}
	if err := errors.Join(f.install(program), f.restartAgents()); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	look := fmt.Sprintf("look-%d", time.Now().Unix())
	_, err = f.kubectl(f.new, "label", "pods", "--all", "--overwrite", "look="+look)
	if err != nil {
		return err
	}
	if err := f.show(look + shows); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	after, err := pods()
	if err == nil && after != before {
		err = fmt.Errorf("%s: what runs has changed from\n%s\nto\n%s", what, before, after)
	}
	if err == nil {
		fmt.Printf("  %s show %s\n", what, shows)
	}
	return err
}

// giveContent has the pods of a daemon run, and then given another content.
func (f *fleet) giveContent() error {
	for _, role := range []string{"content", "content-secrets"} {
		_, err := f.kubectl(f.new, "create", "rolebinding", role, "--clusterrole=everynode:"+role,
			"--serviceaccount=kube-system:daemon-set-controller")
		if err != nil {
			return err
		}
	}
	if err := f.apply(liveDaemon); err != nil {
		return err
	}
	if err := f.show(madeWith); err != nil {
		return err
	}
	_, err := f.kubectl(f.new, "wait", "dsr/agent", "--for=jsonpath={.status.phase}=Complete", "--timeout=3m")
	if err != nil {
		return err
	}
	_, err = f.kubectl(f.new, "patch", "configmap", "conf", "--type=merge", "-p", `{"data":{"conf":"/two"}}`)
	if err != nil {
		return err
	}
	return f.show(givenThen)
}

// show waits until the volumes of all pods show this.
func (f *fleet) show(want string) error {
	return wait("the pods show "+want, func() error {
		names, err := f.kubectl(f.new, "get", "pods", "-l", "app=agent", "-o", "name")
		if err == nil && len(strings.Fields(names)) != 3 {
			err = fmt.Errorf("there are %q", names)
		}
		for _, pod := range strings.Fields(names) {
			got, failed := f.kubectl(f.new, "exec", pod, "--", "demo", "cat", "/conf/look", "/conf/conf", "/conf/token")
			if failed == nil && got != want {
				failed = fmt.Errorf("%s shows %q", pod, got)
			}
			err = errors.Join(err, failed)
		}
		return err
	})
}

const liveDaemon = `
apiVersion: v1
kind: ConfigMap
metadata: {name: conf}
data: {conf: "/one"}
---
apiVersion: v1
kind: Secret
metadata: {name: conf}
stringData: {token: "/token"}
---
apiVersion: everynode.io/v1alpha1
kind: RolloutPolicy
metadata: {name: live}
spec:
  waves: [{name: all, nodes: {}, maxUnavailable: 100%}]
  content: {settle: 1s, secrets: Referenced, apply: Live}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  updateStrategy: {rollingUpdate: {maxUnavailable: 100%}}
  template:
    metadata: {labels: {app: agent}}
    spec:
      terminationGracePeriodSeconds: 1
      volumes:
      - name: conf
        projected:
          sources:
          - configMap: {name: conf}
          - secret: {name: conf}
          - downwardAPI: {items: [{path: look, fieldRef: {fieldPath: "metadata.labels['look']"}}]}
      containers:
        - {name: main, image: "everynode.io/demo:v1", args: [sleep], volumeMounts: [{name: conf, mountPath: /conf}]}
`
