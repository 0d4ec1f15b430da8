package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
)

// turnsAtMost is how often the loops are taken from a server until one that is wanted has them.
const turnsAtMost = 20

// playTurns has servers of both programs beside each other, and in the middle of a change of content the loops of one
// and of the other work in turn. Limits hold across that, and content that has failed goes out to nobody.
func playTurns(p programs) error {
	return onStage(p, p.new, p.older, 3, func(s *stage) error {
		// Each node takes ten seconds, so that the change is under way all the while.
		const slow = "{slowStart: {takes: 10s}}"
		goes, back := agent{name: "goes", then: "Halt", fault: slow}, agent{name: "back", then: "Rollback", fault: slow}
		if err := errors.Join(s.allowContent(), s.spoil(badConf)); err != nil {
			return err
		}
		for _, a := range []agent{goes, back} {
			if err := s.apply(a.manifest()); err != nil {
				return err
			}
		}
		for _, a := range []agent{goes, back} {
			if err := errors.Join(s.phase(a.name, v1alpha1.PhaseComplete, true), s.ready(a.name)); err != nil {
				return err
			}
		}
		if err := s.edit(back.name, badConf); err != nil {
			return err
		}
		if err := s.phase(back.name, v1alpha1.PhaseRolledBack, true); err != nil {
			return err
		}
		if err := errors.Join(s.ready(back.name), s.spoil("")); err != nil {
			return err
		}
		from, err := s.history.mark(s.ctx)
		if err != nil {
			return err
		}
		return s.takeTurns(goes, back, from)
	})
}

func (s *stage) takeTurns(goes, back agent, from int) error {
	if err := s.another(0, s.p.older); err != nil {
		return err
	}
	if err := s.lead(func(number int) bool { return number != 0 }); err != nil {
		return err
	}
	if err := s.edit(goes.name, newConf); err != nil {
		return err
	}
	err := begins("a change of content", func() (bool, error) {
		r, err := s.rollout(goes.name)
		return err == nil && r.Status.Phase == v1alpha1.PhaseProgressing && r.Status.Step != "canary", err
	})
	if err != nil {
		return err
	}
	for _, older := range []bool{true, false, true, false} {
		if err := s.lead(func(number int) bool { return (number == 0) == older }); err != nil {
			return err
		}
		time.Sleep(quiet)
	}
	if err := s.another(0, s.p.new); err != nil {
		return err
	}
	for name, phase := range map[string]v1alpha1.Phase{
		goes.name: v1alpha1.PhaseComplete, back.name: v1alpha1.PhaseRolledBack,
	} {
		if err := errors.Join(s.phase(name, phase, true), s.ready(name)); err != nil {
			return err
		}
	}
	return errors.Join(s.ended(goes.name, from), s.ended(back.name, from), s.allRead(goes.name, newConf))
}

// another has a server run another program.
func (s *stage) another(number int, program string) error {
	return errors.Join(s.install(program), s.restartServer(number))
}

// lead takes the loops from servers until one that is wanted has them. Which program each has does not change.
func (s *stage) lead(wanted func(number int) bool) error {
	for range turnsAtMost {
		number, err := s.leader()
		if err != nil {
			return err
		}
		if wanted(number) {
			fmt.Printf("  server %d leads\n", number+1)
			return nil
		}
		program := s.p.new
		if number == 0 {
			program = s.p.older
		}
		if err := s.another(number, program); err != nil {
			return err
		}
	}
	return errors.New("none of the servers that are wanted leads")
}

// leader is the server whose loops work.
func (s *stage) leader() (number int, err error) {
	leases := s.client.CoordinationV1().Leases("kube-system")
	err = wait("a server leads", func() error {
		lease, err := leases.Get(s.ctx, "everynode-controllers", metav1.GetOptions{})
		if err != nil {
			return err
		}
		p, err := s.processes()
		if err != nil {
			return err
		}
		held := lease.Spec
		if held.HolderIdentity == nil || held.RenewTime == nil || time.Since(held.RenewTime.Time) > 3*time.Second {
			return errors.New("the lease is not renewed")
		}
		name, _, _ := strings.Cut(*held.HolderIdentity, "_")
		number = slices.IndexFunc(p.Plan.Servers, func(s struct{ Name, IP string }) bool { return s.Name == name })
		if number < 0 {
			return fmt.Errorf("it is %q, which is no server", name)
		}
		return nil
	})
	return number, err
}

// allRead fails while a pod of a daemon was made to read anything else.
func (s *stage) allRead(daemon, value string) error {
	return wait("all pods of "+daemon+" read "+value, func() error {
		pods, err := s.pods(daemon)
		if err != nil {
			return err
		}
		for i := range pods {
			if got := s.history.readBy(s.ctx, &pods[i]); !slices.Contains(got, value) {
				return fmt.Errorf("that of %s reads %q", nodeOf(&pods[i]), got)
			}
		}
		return nil
	})
}
