package config

import (
	"strings"
	"testing"
)

func TestNodeIsNamedAfterItsMachine(t *testing.T) {
	for hostname, want := range map[string]string{"Rack1-PC07": "rack1-pc07", "n.Example.COM\n": "n.example.com", "n": "n"} {
		if got := nameOf(hostname); got != want {
			t.Errorf("the node of machine %q is %q", hostname, got)
		}
	}
}

func TestReserve(t *testing.T) {
	good := Config{Pods: Pods{SystemReserved: map[string]string{"cpu": "500m", "memory": "1Gi", "pid": "1000"}}, Runtime: Runtime{LogMaxSize: "1Mi", LogMaxFiles: 2}}
	must(t, good.completeReserve())
	if cpu, memory, pids := good.Reserved.Cpu(), good.Reserved.Memory(), good.Reserved["pid"]; good.MaxPods != defaultMaxPods || cpu.MilliValue() != 500 || memory.Value() != 1<<30 || pids.Value() != 1000 || good.LogMaxBytes != 1<<20 {
		t.Errorf("it became %+v", good)
	}
	for want, c := range map[string]Config{
		"--max-pods -1: a node takes one pod at least":                                           {Pods: Pods{MaxPods: -1}},
		`--system-reserved: of "pods" nothing can be reserved; cpu, memory`:                      {Pods: Pods{SystemReserved: map[string]string{"pods": "1"}}},
		"--system-reserved: cpu=much is not an amount, such as cpu=500m":                         {Pods: Pods{SystemReserved: map[string]string{"cpu": "much"}}},
		"--system-reserved: memory=-1 is not an amount":                                          {Pods: Pods{SystemReserved: map[string]string{"memory": "-1"}}},
		"--container-log-max-size 1k is not a size of 64Ki or more, such as 10Mi":                {Runtime: Runtime{LogMaxSize: "1k"}},
		"--container-log-max-size big is not a size":                                             {Runtime: Runtime{LogMaxSize: "big"}},
		"--container-log-max-files: a container has two files of logs at least, the one that is": {Runtime: Runtime{LogMaxFiles: 1}},
	} {
		if err := c.completeReserve(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

func TestRememberSecretsIsChecked(t *testing.T) {
	for value, want := range map[string]string{
		"": "", "none": "", "plain": "", "/run/keys/node": "",
		"yes": `"yes" is none of none, plain, and the absolute path`, "/data/key": "a key in the data folder", "/run/../data/pki/../key": "a key in the data folder",
	} {
		c := Config{Folders: Folders{DataDir: "/data", RememberSecrets: value}}
		err := c.checkRemember()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", value, err, want)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
