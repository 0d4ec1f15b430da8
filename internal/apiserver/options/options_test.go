package options

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/serializer"
	genericapiserver "k8s.io/apiserver/pkg/server"
)

func TestDefaults(t *testing.T) {
	o, err := New().Complete()
	if err != nil {
		t.Fatal(err)
	}
	c := genericapiserver.NewConfig(serializer.CodecFactory{})
	if err := o.ApplyTo(c); err != nil {
		t.Fatal(err)
	}
	reading, writing := inFlight(runtime.GOMAXPROCS(0))
	if c.MaxRequestsInFlight != reading || c.MaxMutatingRequestsInFlight != writing || c.ShutdownWatchTerminationGracePeriod != 2*time.Second {
		t.Errorf("limits are %d and %d, the grace of watches %v", c.MaxRequestsInFlight, c.MaxMutatingRequestsInFlight, c.ShutdownWatchTerminationGracePeriod)
	}
	if c.EffectiveVersion == nil || c.FeatureGate == nil {
		t.Error("there is no version or no feature gate")
	}
	if !o.Embedded() || o.Etcd.StorageConfig.Prefix != "/registry" {
		t.Errorf("objects are kept in %v below %q", o.Etcd.StorageConfig.Transport.ServerList, o.Etcd.StorageConfig.Prefix)
	}
}

func TestSmallMachinesServeFewerRequestsAtATime(t *testing.T) {
	for cores, want := range map[int][2]int{1: {8, 4}, 2: {16, 8}, 10: {80, 40}, 50: {400, 200}, 64: {400, 200}} {
		if r, w := inFlight(cores); r != want[0] || w != want[1] {
			t.Errorf("%d cores: %d and %d, want %v", cores, r, w, want)
		}
	}
}

// Every refusal is one line that names the flag.
func TestRefusals(t *testing.T) {
	for want, change := range map[string]func(*Options){
		"--max-requests-inflight":            func(o *Options) { o.Run.MaxRequestsInFlight = -1 },
		"--goaway-chance":                    func(o *Options) { o.Run.GoawayChance = 0.5 },
		"--request-timeout":                  func(o *Options) { o.Run.RequestTimeout = -time.Second },
		"--min-request-timeout":              func(o *Options) { o.Run.MinRequestTimeout = -1 },
		"there is no gate \"Nope\"":          func(o *Options) { o.FeatureGates = map[string]bool{"Nope": true} },
		"--audit-policy-file":                func(o *Options) { o.Audit.LogOptions.Path = "/nowhere/audit.log" },
		"--audit-log-path":                   func(o *Options) { o.Audit.PolicyFile = "/nowhere/policy.yaml" },
		"--encryption-provider-config: stat": func(o *Options) { o.Etcd.EncryptionProviderConfigFilepath = "/nowhere/keys.yaml" },
		"--tls-min-version":                  func(o *Options) { o.Serving.MinTLSVersion = "VersionTLS11" },
		"--tls-cipher-suites":                func(o *Options) { o.Serving.CipherSuites = []string{"ROT13"} },
		"RBACEscalation cannot be off":       func(o *Options) { o.DisablePlugins = []string{"RBACEscalation"} },
		"CertificateApproval cannot be off":  func(o *Options) { o.DisablePlugins = []string{"x", "CertificateApproval"} },
		"ServerTokens cannot be off":         func(o *Options) { o.DisablePlugins = []string{"ServerTokens"} },
		"LiveContent cannot be off":          func(o *Options) { o.DisablePlugins = []string{"LiveContent"} },
		"--node-cidr \"10.0.0.1\"":           func(o *Options) { o.NodeNetworks = []string{"10.0.0.0/8", "10.0.0.1"} },
		"--shutdown-delay-duration":          func(o *Options) { o.Run.ShutdownDelayDuration = -time.Second },
	} {
		o := New()
		change(o)
		_, err := o.Complete()
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("got %v, want one line about %s", err, want)
		}
	}
}
