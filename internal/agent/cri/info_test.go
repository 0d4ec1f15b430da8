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
}

func (wellRuntime) Version(context.Context, string) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{RuntimeName: "containerd", RuntimeVersion: "v2.1.0"}, nil
}

func (wellRuntime) Status(context.Context, bool) (*runtimeapi.StatusResponse, error) {
	return &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
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
	for name, c := range map[string]struct {
		runtime wellRuntime
		ready   bool
		fails   bool
	}{
		"cgroupfs":          {wellRuntime{driver: driver(runtimeapi.CgroupDriver_CGROUPFS)}, true, false},
		"systemd":           {wellRuntime{driver: driver(runtimeapi.CgroupDriver_SYSTEMD)}, false, false},
		"too old to say":    {wellRuntime{err: grpcstatus.Error(codes.Unimplemented, "unknown method")}, true, false},
		"says nothing":      {wellRuntime{driver: &runtimeapi.RuntimeConfigResponse{}}, true, false},
		"does not answer":   {wellRuntime{err: errors.New("broken pipe")}, false, true},
		"answers otherwise": {wellRuntime{err: grpcstatus.Error(codes.Unavailable, "gone")}, false, true},
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
