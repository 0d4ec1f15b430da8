package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/test/upgrade/guide"
)

// quiet is how long a program is watched that is to do nothing.
const quiet = 8 * time.Second

// The content that fails, and that which the canaries of a change that waits have.
const (
	badConf = "bad"
	newConf = "two"
)

// backWithout is the section of the guide for who goes back.
const backWithout = "Back to a program without content"

// advised is whom the guide's commands are for. What was taken back is in the object of "back" still.
const advised = "log-agent"

// contentAgents are in each state that a change of content can be in when the program goes back.
var contentAgents = []struct {
	agent
	edit  string
	phase v1alpha1.Phase
}{
	{agent{name: advised, conf: "agent", policy: "careful", then: "Rollback"}, badConf, v1alpha1.PhaseRolledBack},
	{agent{name: "back", then: "Rollback"}, badConf, v1alpha1.PhaseRolledBack},
	{agent{name: "halts", then: "Halt"}, badConf, v1alpha1.PhaseHalted},
	{agent{name: "waits", then: "Halt", approval: "Manual"}, newConf, v1alpha1.PhaseWaitingForApproval},
	{agent{name: "live", then: "Halt", apply: "Live"}, newConf, v1alpha1.PhaseComplete},
	{agent{name: "still", then: "Halt"}, "", v1alpha1.PhaseComplete},
}

// playContent goes to a program that knows no content, and back to this one. Nobody is replaced for it. Where the
// guide's commands were played before, a pod that is lost meanwhile reads what the others do.
func playContent(p programs) error {
	return onStage(p, p.new, p.older, 1, func(s *stage) error {
		if err := s.allowContent(); err != nil {
			return err
		}
		_, err := s.kubectl(s.new, "label", "nodes", "--all", content.LiveName+"=true")
		if err := errors.Join(err, s.contents()); err != nil {
			return err
		}
		from, err := s.history.mark(s.ctx)
		if err != nil {
			return err
		}
		if err := s.advise(); err != nil {
			return err
		}
		if err := errors.Join(s.replace("the older program", p.older), s.olderRuns()); err != nil {
			return err
		}
		if err := s.lose(advised, 3); err != nil {
			return err
		}
		if err := s.replace("this program again", p.new); err != nil {
			return err
		}
		for _, a := range contentAgents {
			phase := a.phase
			if a.name == advised {
				phase = v1alpha1.PhaseComplete
			}
			if err := errors.Join(s.phase(a.name, phase, true), s.ready(a.name)); err != nil {
				return err
			}
		}
		time.Sleep(quiet)
		to, err := s.history.mark(s.ctx)
		if err != nil {
			return err
		}
		for _, a := range contentAgents {
			err = errors.Join(err, s.judge(a.name, badConf, from, to, false))
		}
		return err
	})
}

// advise does for one of the agents what the guide says, word for word.
func (s *stage) advise() error {
	if err := s.obey(backWithout, 0); err != nil {
		return err
	}
	fmt.Println("  the guide's commands were played")
	return s.phase(advised, v1alpha1.PhaseComplete, true)
}

// contents has each agent in its state.
func (s *stage) contents() error {
	if err := s.spoil(badConf); err != nil {
		return err
	}
	manifest := ""
	for _, a := range contentAgents {
		manifest += a.manifest()
	}
	if err := s.apply(manifest); err != nil {
		return err
	}
	for _, a := range contentAgents {
		if err := errors.Join(s.phase(a.name, v1alpha1.PhaseComplete, true), s.ready(a.name)); err != nil {
			return err
		}
	}
	for _, a := range contentAgents {
		if a.edit == "" {
			continue
		}
		if err := s.edit(a.confName(), a.edit); err != nil {
			return err
		}
	}
	for _, a := range contentAgents {
		if err := s.phase(a.name, a.phase, true); err != nil {
			return err
		}
	}
	if err := s.spoil(""); err != nil {
		return err
	}
	for _, a := range contentAgents {
		if err := s.ready(a.name); err != nil {
			return err
		}
	}
	fmt.Println("  content has been rolled back, halts, waits, and is everywhere")
	return s.gaveContent("live")
}

// gaveContent wants a running pod of an agent to have been given content.
func (s *stage) gaveContent(agent string) error {
	pods, err := s.kubectl(s.new, "get", "pods", "-l", "app="+agent, "-o", "json")
	if err == nil && !strings.Contains(pods, `"`+content.LiveName+`"`) {
		err = fmt.Errorf("no pod of %s was given content as it ran", agent)
	}
	return err
}

// olderRuns waits until the older program has looked at all rollouts.
func (s *stage) olderRuns() error {
	for _, a := range contentAgents {
		err := wait("the older program looks at "+a.name, func() error {
			r, err := s.rollout(a.name)
			if err == nil && r.Status.Content != nil {
				err = errors.New("its rollout has content")
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	time.Sleep(quiet)
	return nil
}

// obey runs commands of the guide word for word, as somebody does who has the program in his path.
func (s *stage) obey(section string, block int) error {
	blocks, err := guide.Commands(s.p.guide, section)
	if err != nil || block >= len(blocks) {
		return fmt.Errorf("choose block %d of %d: %w", block, len(blocks), err)
	}
	cmd := exec.Command("bash", "-euo", "pipefail", "-c", blocks[block])
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(s.program)+":"+os.Getenv("PATH"),
		"KUBECONFIG="+filepath.Join(s.dir, "kubeconfig"))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("what %q says: %w: %s", section, err, out)
	}
	return nil
}
