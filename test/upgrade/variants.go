package main

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
)

// Daemons whose variants are changed: one whose pods are replaced for it and one whose pods are resized, both under a
// policy that waits for approval, and one without a policy, whose change stands still as its new pods do not start.
const (
	threads = "threads"
	amounts = "amounts"
	free    = "free"
)

// variedNodes are the classes of the nodes: canaries and others of size xl, and those of the template.
var variedNodes = map[string]string{
	"sim-0001": "canary=yes", "sim-0002": "canary=yes", "sim-0003": "canary=no", "sim-0004": "canary=no",
}

// variants are those of all daemons, with what they give and what ails the pods of the one without a policy.
func variants(threads, memory, fault string) string {
	return strings.NewReplacer("VALUE", threads, "MEMORY", memory, "FAULT", fault).Replace(variantsManifest)
}

// variedSet is a daemon, with a policy or without.
func variedSet(name string, policy bool) string {
	text := ""
	if policy {
		text = `
apiVersion: everynode.io/v1alpha1
kind: RolloutPolicy
metadata: {name: NAME}
spec:
  selector: {matchLabels: {app: NAME}}
  waves: [{name: canary, nodes: {matchLabels: {canary: "yes"}}, soak: 2s, approval: Manual}]
---`
	}
	return strings.ReplaceAll(text+"\n"+variedManifest, "NAME", name)
}

// given is what a pod has of its variant.
func given(pod *corev1.Pod) string {
	c := &pod.Spec.Containers[0]
	at := slices.IndexFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == "THREADS" })
	if at < 0 {
		return ""
	}
	return c.Env[at].Value + "/" + c.Resources.Requests.Memory().String()
}

// playVariants goes from the release before to this program, back and again, in the middle of a change of variants, in
// order and by kills. Nothing restarts, and every pod that is lost meanwhile comes back with the variant that its node
// had. Then the change goes on, and takes the nodes that it concerns.
func playVariants(p programs) error {
	return onStage(p, p.old, p.new, 1, func(s *stage) error {
		for node, label := range variedNodes {
			if _, err := s.kubectl(s.new, "label", "node", node, label); err != nil {
				return err
			}
		}
		if err := s.changesVariants(); err != nil {
			return err
		}
		for _, program := range []string{p.new, p.old, p.new} {
			err := s.middle(program, func() error { return s.replace("another program in a change of variants", program) })
			if err != nil {
				return err
			}
		}
		for _, program := range []string{p.old, p.new} {
			err := s.middle(program, func() error { return s.swap("a change of variants", program) })
			if err != nil {
				return err
			}
		}
		return s.variantsGoOn()
	})
}

// changesVariants has the daemons run, and begins to change what their variants give.
func (s *stage) changesVariants() error {
	sets := variedSet(threads, true) + variedSet(amounts, true) + variedSet(free, false)
	if err := s.apply(variants("8", "256Mi", "") + sets); err != nil {
		return err
	}
	large, small := slices.Repeat([]string{"8/64Mi"}, 4), slices.Repeat([]string{"1/64Mi"}, 4)
	sized := slices.Repeat([]string{"1/256Mi"}, 4)
	for name, want := range map[string][]string{threads: append(large, small...), amounts: append(sized, small...),
		free: append(large, small...)} {
		if err := errors.Join(s.ready(name), s.have(name, want)); err != nil {
			return err
		}
	}
	for _, name := range []string{threads, amounts} {
		if err := s.phase(name, v1alpha1.PhaseComplete, false); err != nil {
			return err
		}
	}
	if err := s.apply(variants("16", "384Mi", "simulated.everynode.io/fault: neverReady")); err != nil {
		return err
	}
	for name, want := range map[string][]string{
		threads: append([]string{"16/64Mi", "16/64Mi", "8/64Mi", "8/64Mi"}, small...),
		amounts: append([]string{"1/384Mi", "1/384Mi", "1/256Mi", "1/256Mi"}, small...),
	} {
		if err := errors.Join(s.phase(name, v1alpha1.PhaseWaitingForApproval, false), s.have(name, want)); err != nil {
			return err
		}
	}
	err := wait("two pods without a policy are new", func() error {
		pods, err := s.pods(free)
		if err != nil {
			return err
		}
		if n := len(slices.DeleteFunc(pods, func(p corev1.Pod) bool { return given(&p) != "16/64Mi" })); n != stageLimit {
			return fmt.Errorf("%d are", n)
		}
		return nil
	})
	if err == nil {
		fmt.Println("  a change of variants waits for approval, and for pods that do not start")
	}
	time.Sleep(quiet)
	return err
}

// have waits until the pods of a daemon have what their nodes' variants give, in the order of the nodes.
func (s *stage) have(daemon string, want []string) error {
	return wait("the pods of "+daemon+" have their variants", func() error {
		pods, err := s.pods(daemon)
		if err != nil {
			return err
		}
		var have []string
		for i := range pods {
			have = append(have, given(&pods[i]))
		}
		if !slices.Equal(have, want) {
			return fmt.Errorf("they have %q, want %q", have, want)
		}
		return nil
	})
}

// variedPods is what each pod has, by daemon and node.
func (s *stage) variedPods() (map[string]string, error) {
	out := map[string]string{}
	for _, name := range []string{threads, amounts, free} {
		pods, err := s.pods(name)
		if err == nil {
			err = s.full(pods)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for i := range pods {
			out[name+" "+nodeOf(&pods[i])] = given(&pods[i])
		}
	}
	return out, nil
}

// middle has a program begin in the middle of the change, and pods of each class be lost. It fails if anything else has
// gone, or a pod has had anything else than its node had before.
func (s *stage) middle(program string, begin func() error) error {
	was, err := s.variedPods()
	if err != nil {
		return err
	}
	from, err := s.history.mark(s.ctx)
	if err != nil {
		return err
	}
	if err := begin(); err != nil {
		return err
	}
	judged := []string{threads, amounts}
	for _, name := range judged {
		for _, number := range []int{0, 2, 6} {
			if err := s.lose(name, number); err != nil {
				return err
			}
		}
		if err := s.phase(name, v1alpha1.PhaseWaitingForApproval, false); err != nil {
			return err
		}
	}
	time.Sleep(quiet)
	to, err := s.history.mark(s.ctx)
	if err != nil {
		return err
	}
	if program == s.p.new { // one of before takes pods back as it begins, where no policy is followed
		judged = append(judged, free)
	}
	moments := s.history.between(from, to)
	lines := func(of []string) string { return strings.Join(of, "\n  ") }
	for _, name := range judged {
		wrong := append(strayed(moments, name, was), gone(moments, name, s.byUs)...)
		if len(wrong) > 0 {
			return fmt.Errorf("%s in a change of variants:\n  %s\nwhat happened:\n  %s\nwhat was told of it:\n  %s",
				program, lines(wrong), lines(story(moments, name)), lines(s.told(name)))
		}
	}
	return nil
}

// variantsGoOn ends the changes, and looks at who was taken for them.
func (s *stage) variantsGoOn() error {
	middle, err := s.history.mark(s.ctx)
	if err != nil {
		return err
	}
	if err := s.apply(variants("16", "384Mi", "")); err != nil {
		return err
	}
	for _, name := range []string{threads, amounts} {
		cmd := exec.Command(s.new, "rollout", "approve", "daemonset/"+name, "--kubeconfig",
			filepath.Join(s.dir, "kubeconfig"))
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("approve: %w: %s", err, out)
		}
		if err := s.phase(name, v1alpha1.PhaseComplete, false); err != nil {
			return err
		}
	}
	large, small := slices.Repeat([]string{"16/64Mi"}, 4), slices.Repeat([]string{"1/64Mi"}, 4)
	sized := slices.Repeat([]string{"1/384Mi"}, 4)
	for name, want := range map[string][]string{threads: append(large, small...), amounts: append(sized, small...),
		free: append(large, small...)} {
		if err := errors.Join(s.ready(name), s.have(name, want), s.ended(name, middle)); err != nil {
			return err
		}
		to, err := s.history.mark(s.ctx)
		if err != nil {
			return err
		}
		// Pods that are resized stay, and so do those of the template, and canaries that have what they are to have.
		stay := slices.DeleteFunc(s.history.between(middle, to), func(m moment) bool {
			return name != amounts && m.node < "sim-0005" && (name == free || m.node > "sim-0002")
		})
		if wrong := gone(stay, name, s.byUs); len(wrong) > 0 {
			return fmt.Errorf("after the change went on:\n  %s", strings.Join(wrong, "\n  "))
		}
	}
	return nil
}

// strayed are the pods of a daemon that have had anything else than was given there, by daemon and node.
func strayed(moments []moment, daemon string, was map[string]string) (out []string) {
	for _, m := range moments {
		if want := was[m.daemon+" "+m.node]; m.daemon == daemon && m.given != want && !m.gone {
			out = append(out, fmt.Sprintf("it has %s, and its node had %s: %s", m.given, want, m))
		}
	}
	return out
}

// gone are the pods of a daemon that went, but for those that the scenario took itself.
func gone(moments []moment, daemon string, byUs map[types.UID]bool) (out []string) {
	for _, m := range moments {
		if m.daemon == daemon && (m.going || m.gone) && !byUs[m.uid] {
			out = append(out, "it went: "+m.String())
		}
	}
	return out
}
