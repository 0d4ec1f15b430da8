package cri

import (
	"context"
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/everynode/everynode/internal/agent/cgroups"
)

// wellRuntime is a runtime that is ready, and answers so about its cgroup driver.
type wellRuntime struct {
	internalapi.RuntimeService
	driver *runtimeapi.RuntimeConfigResponse
	err    error
	// config is what it shows of its configuration.
	config string
}

func (wellRuntime) Version(context.Context, string) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{RuntimeName: "containerd", RuntimeVersion: "v2.1.0"}, nil
}

func (r wellRuntime) Status(_ context.Context, verbose bool) (*runtimeapi.StatusResponse, error) {
	info := map[string]string{}
	if verbose {
		info["config"] = r.config
	}
	return &runtimeapi.StatusResponse{Info: info, Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
		{Type: runtimeapi.RuntimeReady, Status: true}, {Type: runtimeapi.NetworkReady, Status: true},
	}}}, nil
}

func (r wellRuntime) RuntimeConfig(context.Context) (*runtimeapi.RuntimeConfigResponse, error) {
	return r.driver, r.err
}

// The runtime says who makes cgroups, each in its own way, or does not; one that changed its mind starts no pod, and the node says so.
func TestCgroupDriverOfTheRuntime(t *testing.T) {
	driver := func(d runtimeapi.CgroupDriver) *runtimeapi.RuntimeConfigResponse {
		return &runtimeapi.RuntimeConfigResponse{Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: d}}
	}
	old := grpcstatus.Error(codes.Unimplemented, "unknown method")
	// As containerd 1.6 shows it; pods of the other class are none of this node's.
	containerd1 := func(options string) string {
		return `{"containerd":{"defaultRuntimeName":"runc","runtimes":{"runc":{"options":` + options + `},"other":{"options":{"SystemdCgroup":true}}}},"sandboxImage":"pause:1"}`
	}
	for name, c := range map[string]struct {
		runtime wellRuntime
		want    cgroups.Driver
		fails   bool
	}{
		"cgroupfs":               {wellRuntime{driver: driver(runtimeapi.CgroupDriver_CGROUPFS)}, cgroups.Cgroupfs, false},
		"systemd":                {wellRuntime{driver: driver(runtimeapi.CgroupDriver_SYSTEMD)}, cgroups.Systemd, false},
		"too old to say":         {wellRuntime{err: old}, "", false},
		"containerd 1, cgroupfs": {wellRuntime{err: old, config: containerd1(`{"SystemdCgroup":false}`)}, cgroups.Cgroupfs, false},
		"containerd 1, systemd":  {wellRuntime{err: old, config: containerd1(`{"SystemdCgroup":true}`)}, cgroups.Systemd, false},
		"containerd 1, default":  {wellRuntime{err: old, config: containerd1(`null`)}, cgroups.Cgroupfs, false},
		"another configuration":  {wellRuntime{err: old, config: `[]`}, "", false},
		"says nothing":           {wellRuntime{driver: &runtimeapi.RuntimeConfigResponse{}}, "", false},
		"does not answer":        {wellRuntime{err: errors.New("broken pipe")}, "", true},
		"answers otherwise":      {wellRuntime{err: grpcstatus.Error(codes.Unavailable, "gone")}, "", true},
	} {
		got, err := CgroupDriver(t.Context(), c.runtime)
		if (err != nil) != c.fails || got != c.want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		for _, own := range []cgroups.Driver{cgroups.Cgroupfs, cgroups.Systemd} {
			groups, err := cgroups.New(cgroups.Config{Driver: own, Node: "n", Mount: t.TempDir()})
			if err != nil {
				t.Fatal(err)
			}
			info, err := New(Config{Service: c.runtime, Cgroups: groups}).Info(t.Context())
			if ready := !c.fails && (c.want == "" || c.want == own); (err != nil) != c.fails || info.Ready.OK != ready {
				t.Errorf("%s, on a node with %s: %+v, %v", name, own, info.Ready, err)
			}
			if !c.fails && !info.Ready.OK && !strings.Contains(info.Ready.Message, "restart the agent, or set SystemdCgroup = ") {
				t.Errorf("%s: the message does not say what to do: %s", name, info.Ready.Message)
			}
		}
	}
}
