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

// A runtime that leaves cgroups to systemd starts no pod here; the node says so before a pod comes.
func TestRuntimeThatLeavesCgroupsToSystemdIsNotReady(t *testing.T) {
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
		ready   bool
		fails   bool
	}{
		"cgroupfs":               {wellRuntime{driver: driver(runtimeapi.CgroupDriver_CGROUPFS)}, true, false},
		"systemd":                {wellRuntime{driver: driver(runtimeapi.CgroupDriver_SYSTEMD)}, false, false},
		"too old to say":         {wellRuntime{err: old}, true, false},
		"containerd 1, cgroupfs": {wellRuntime{err: old, config: containerd1(`{"SystemdCgroup":false}`)}, true, false},
		"containerd 1, systemd":  {wellRuntime{err: old, config: containerd1(`{"SystemdCgroup":true}`)}, false, false},
		"containerd 1, default":  {wellRuntime{err: old, config: containerd1(`null`)}, true, false},
		"another configuration":  {wellRuntime{err: old, config: `[]`}, true, false},
		"says nothing":           {wellRuntime{driver: &runtimeapi.RuntimeConfigResponse{}}, true, false},
		"does not answer":        {wellRuntime{err: errors.New("broken pipe")}, false, true},
		"answers otherwise":      {wellRuntime{err: grpcstatus.Error(codes.Unavailable, "gone")}, false, true},
	} {
		info, err := New(Config{Service: c.runtime, CgroupMount: t.TempDir()}).Info(t.Context())
		if (err != nil) != c.fails || info.Ready.OK != c.ready {
			t.Errorf("%s: %+v, %v", name, info.Ready, err)
		}
		if !c.ready && !c.fails && !strings.Contains(info.Ready.Message, "SystemdCgroup = false") {
			t.Errorf("%s: the message does not say what to do: %s", name, info.Ready.Message)
		}
	}
}
