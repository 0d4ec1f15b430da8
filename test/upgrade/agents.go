package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/everynode/everynode/test/upgrade/nodes"
)

// installOnNodes has the agents be the installed program when they next start.
func (f *fleet) installOnNodes() error {
	if !f.real {
		return nil
	}
	now, err := f.processes()
	if errors.Is(err, fs.ErrNotExist) {
		return nil // there are no nodes yet
	}
	for name, node := range now.Nodes {
		if failed := nodes.Install(node.Init.PID, f.program); failed != nil {
			err = errors.Join(err, fmt.Errorf("install the program on %s: %w", name, failed))
		}
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

// takeOver has other agents run the pods, which have written all volumes again when these show the pods' new label.
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
