package agent

import (
	"path/filepath"

	"github.com/everynode/everynode/internal/agent/cri"
	"github.com/everynode/everynode/internal/agent/events"
	"github.com/everynode/everynode/internal/agent/images"
	"github.com/everynode/everynode/internal/agent/objects"
)

// newPuller makes what makes images present, for pods and for who asks before them.
func (a *Agent) newPuller(n *node, services cri.Services, objs objects.Reader, ev events.Recorder) *images.Manager {
	config := images.Config{
		Service: services.Images, Secrets: objs.Secret, Record: ev.Container, Clock: a.clk,
		LoginFile: filepath.Join(a.cfg.KubeletDir, "config.json"), MaxPulls: a.cfg.MaxPulls,
	}
	if a.programs != nil {
		config.Programs = a.programs
	}
	puller := images.New(config)
	n.stock = stock{images: puller, pins: images.OpenPins(filepath.Join(a.cfg.DataDir, pinsFile))}
	return puller
}
