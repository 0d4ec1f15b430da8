package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// startingTaint is what keeps ordinary pods from a node that starts.
const startingTaint = "everynode.io/starting"

// playSizes goes to a program that knows neither variants nor NodeStartups, and back. Pods keep their size, one that is
// lost meanwhile has that of the template until this program runs again, and a node that was closed stays closed
// until somebody opens it, or this program does.
func playSizes(p programs) error {
	return onStage(p, p.new, p.older, 1, func(s *stage) error {
		for _, node := range []string{"sim-0001", "sim-0002"} {
			if _, err := s.kubectl(s.new, "label", "node", node, "size=xl"); err != nil {
				return err
			}
		}
		if err := errors.Join(s.apply(sized), s.ready("sized"), s.sizes("256Mi", "256Mi")); err != nil {
			return err
		}
		if err := s.close("sim-0007", "sim-0008"); err != nil {
			return err
		}
		from, err := s.history.mark(s.ctx)
		if err != nil {
			return err
		}
		if err := s.sizesUnderOlder(); err != nil {
			return err
		}
		if err := s.replace("this program again", p.new); err != nil {
			return err
		}
		if err := s.sizes("256Mi", "256Mi"); err != nil {
			return err
		}
		time.Sleep(quiet)
		if err := errors.Join(s.closed("sim-0008"), s.open("sim-0007"), s.apply(gate), s.open("sim-0008")); err != nil {
			return err
		}
		return errors.Join(s.ready("sized"), s.ended("sized", from), s.kept("sized", from))
	})
}

func (s *stage) sizesUnderOlder() error {
	if err := s.replace("the older program", s.p.older); err != nil {
		return err
	}
	if err := s.lose("sized", 1); err != nil {
		return err
	}
	time.Sleep(quiet)
	if err := s.sizes("256Mi", "64Mi"); err != nil {
		return err
	}
	if err := errors.Join(s.closed("sim-0007"), s.closed("sim-0008")); err != nil {
		return err
	}
	if err := s.obey(backWithout, 1); err != nil {
		return err
	}
	return s.open("sim-0007")
}

// sizes waits until the pods on the first nodes ask for so much memory, and the others for what the template says.
func (s *stage) sizes(want ...string) error {
	for len(want) < stageNodes-2 {
		want = append(want, "64Mi")
	}
	return wait("the pods have their sizes", func() error {
		pods, err := s.pods("sized")
		if err != nil {
			return err
		}
		var have []string
		for _, p := range pods {
			if number := strings.TrimPrefix(nodeOf(&p), "sim-"); number <= "0006" {
				have = append(have, p.Spec.Containers[0].Resources.Requests.Memory().String())
			}
		}
		if !slices.Equal(have, want) {
			return fmt.Errorf("they ask for %v, want %v", have, want)
		}
		return nil
	})
}

// close has nodes made again, which are to wait for a daemon that is missing.
func (s *stage) close(names ...string) error {
	nodes := s.client.CoreV1().Nodes()
	for _, name := range names {
		if err := nodes.Delete(s.ctx, name, metav1.DeleteOptions{}); err != nil {
			return err
		}
	}
	if err := s.replace("a start that makes the nodes again", s.p.new); err != nil {
		return err
	}
	for _, name := range names {
		if err := wait(name+" is there again", func() error { return s.closed(name) }); err != nil {
			return err
		}
	}
	return s.ready("sized")
}

func (s *stage) starting(name string) (bool, error) {
	node, err := s.client.CoreV1().Nodes().Get(s.ctx, name, metav1.GetOptions{})
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == startingTaint }), nil
}

// closed fails if a node does not stand behind its gate.
func (s *stage) closed(name string) error {
	is, err := s.starting(name)
	if err == nil && !is {
		err = fmt.Errorf("node %s is open, and the daemon that it waits for is missing", name)
	}
	return err
}

// open waits until a node does not stand behind its gate any more.
func (s *stage) open(name string) error {
	return wait("node "+name+" is open", func() error {
		is, err := s.starting(name)
		if err == nil && is {
			err = errors.New("it is not")
		}
		return err
	})
}

// kept fails if a pod that has worked all the while is another one now.
func (s *stage) kept(daemon string, from int) error {
	to, err := s.history.mark(s.ctx)
	if err != nil {
		return err
	}
	var wrong []string
	for _, m := range s.history.between(from, to) {
		if m.daemon == daemon && m.node > "sim-0002" && m.node < "sim-0007" && (m.going || m.gone) {
			wrong = append(wrong, m.String())
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("pods that were replaced for no reason:\n  %s", strings.Join(wrong, "\n  "))
	}
	return nil
}
