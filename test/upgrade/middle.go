package main

import (
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
)

// playMiddle kills the server in the middle of what it does, and has another program go on: in a rollback of content,
// in one of a template, and while the first node of a template finds the digests of its images.
func playMiddle(p programs) error {
	return onStage(p, p.new, p.older, 1, func(s *stage) error {
		if err := s.allowContent(); err != nil {
			return err
		}
		for _, play := range []func() error{s.inRollbackOfContent, s.inRollbackOfTemplate, s.whilePinning} {
			if err := play(); err != nil {
				return err
			}
		}
		return nil
	})
}

// swap kills the server in the middle, and again soon after each other program has begun.
func (s *stage) swap(what string, to ...string) error {
	for _, program := range to {
		if err := errors.Join(s.install(program), s.killServer(), s.answers()); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	fmt.Printf("  killed in the middle of %s: %d programs\n", what, len(to))
	return nil
}

// begins waits until something has just begun. It may be over a moment later, so it is asked for again and again.
func begins(what string, is func() (bool, error)) error {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if yes, err := is(); yes || err != nil {
			return err
		}
	}
	return fmt.Errorf("%s: it did not begin", what)
}

// goesBack reports whether a rollout has been rolled back, and nodes have its revision yet.
func (s *stage) goesBack(daemon string) (bool, error) {
	r, err := s.rollout(daemon)
	return err == nil && r.Status.Phase == v1alpha1.PhaseRolledBack, err
}

// starts has an agent on all nodes.
func (s *stage) starts(a agent) error {
	return errors.Join(s.apply(a.manifest()), s.phase(a.name, v1alpha1.PhaseComplete, true), s.ready(a.name))
}

// inRollbackOfContent: canaries that go back from content that failed do so under each program, and it goes out to
// nobody else.
func (s *stage) inRollbackOfContent() error {
	a := agent{name: "content", then: "Rollback"}
	if err := errors.Join(s.spoil(badConf), s.starts(a), s.edit(a.name, badConf)); err != nil {
		return err
	}
	if err := begins("a rollback of content", func() (bool, error) { return s.goesBack(a.name) }); err != nil {
		return err
	}
	from, err := s.history.mark(s.ctx)
	if err != nil {
		return err
	}
	if err := s.swap("a rollback of content", s.p.new, s.p.older, s.p.new); err != nil {
		return err
	}
	if err := errors.Join(s.phase(a.name, v1alpha1.PhaseRolledBack, true), s.ready(a.name)); err != nil {
		return err
	}
	return s.ended(a.name, from)
}

// inRollbackOfTemplate does so with a template that fails.
func (s *stage) inRollbackOfTemplate() error {
	a := agent{name: "template", then: "Rollback"}
	if err := s.starts(a); err != nil {
		return err
	}
	patch := `{"spec":{"template":{"metadata":{"annotations":{"simulated.everynode.io/fault":"crash"}}}}}`
	sets := s.client.AppsV1().DaemonSets("default")
	if _, err := sets.Patch(s.ctx, a.name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		return err
	}
	if err := begins("a rollback of a template", func() (bool, error) { return s.goesBack(a.name) }); err != nil {
		return err
	}
	if err := s.swap("a rollback of a template", s.p.new, s.p.older, s.p.new); err != nil {
		return err
	}
	if err := s.phase(a.name, v1alpha1.PhaseRolledBack, true); err != nil {
		return err
	}
	from, err := s.history.mark(s.ctx)
	if err != nil {
		return err
	}
	crashes := func(p *corev1.Pod) bool { return p.Annotations["simulated.everynode.io/fault"] != "" }
	err = wait("no node has the template that failed", func() error {
		pods, err := s.pods(a.name)
		for i := range pods {
			if crashes(&pods[i]) {
				return fmt.Errorf("%s has", nodeOf(&pods[i]))
			}
		}
		return errors.Join(err, s.full(pods))
	})
	if err != nil {
		return err
	}
	return s.ended(a.name, from)
}

func (s *stage) full(pods []corev1.Pod) error {
	if len(pods) != stageNodes {
		return fmt.Errorf("there are %d pods", len(pods))
	}
	return nil
}

// whilePinning: no other node gets its pod while the first one pulls. The older program does not wait for it, and makes
// all by their tags; what this one changes about them then it does within the limit.
func (s *stage) whilePinning() error {
	a := agent{name: "pinned", then: "Halt", fault: "{slowPull: {takes: 30s}}"}
	if err := s.apply(a.manifest()); err != nil {
		return err
	}
	first := func() (bool, error) {
		pods, err := s.pods(a.name)
		return len(pods) == 1, err
	}
	if err := begins("pinning", first); err != nil {
		return err
	}
	if err := s.swap("pinning", s.p.new); err != nil {
		return err
	}
	time.Sleep(quiet)
	if is, err := first(); err != nil || !is {
		return fmt.Errorf("not only the first node has a pod after a start, before the digests are known: %w", err)
	}
	if err := errors.Join(s.swap("pinning", s.p.older), s.ready(a.name)); err != nil {
		return err
	}
	if err := errors.Join(s.swap("pinning", s.p.new), s.phase(a.name, v1alpha1.PhaseComplete, true)); err != nil {
		return err
	}
	if err := s.ready(a.name); err != nil {
		return err
	}
	return s.ended(a.name, 0)
}

// ended judges a daemon up to now, some time after its end.
func (s *stage) ended(daemon string, from int) error {
	time.Sleep(quiet)
	to, err := s.history.mark(s.ctx)
	if err != nil {
		return err
	}
	return s.judge(daemon, badConf, from, to, true)
}
