package kubeletconfig

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logsapi "k8s.io/component-base/logs/api/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"
)

func span(d time.Duration) metav1.Duration { return metav1.Duration{Duration: d} }

// Fixed is how a node is, in a kubelet's words, as far as nobody can tell it otherwise.
func Fixed() *Configuration {
	return &Configuration{
		TypeMeta:     metav1.TypeMeta{APIVersion: kubelet.SchemeGroupVersion.String(), Kind: kind},
		EnableServer: ptr.To(true), Address: "0.0.0.0", RotateCertificates: true, ServerTLSBootstrap: true,
		TLSMinVersion: "VersionTLS12",
		Authentication: kubelet.KubeletAuthentication{
			Webhook:   kubelet.KubeletWebhookAuthentication{Enabled: ptr.To(true), CacheTTL: span(2 * time.Minute)},
			Anonymous: kubelet.KubeletAnonymousAuthentication{Enabled: ptr.To(false)},
		},
		Authorization: kubelet.KubeletAuthorization{
			Mode: kubelet.KubeletAuthorizationModeWebhook,
			Webhook: kubelet.KubeletWebhookAuthorization{
				CacheAuthorizedTTL:   span(5 * time.Minute),
				CacheUnauthorizedTTL: span(30 * time.Second),
			},
		},
		PodLogsDir: "/var/log/pods", SyncFrequency: span(time.Minute), FileCheckFrequency: span(time.Second),
		RegistryPullQPS: ptr.To[int32](0), EventRecordQPS: ptr.To[int32](0), KubeAPIQPS: ptr.To[int32](-1),
		ImagePullCredentialsVerificationPolicy: kubelet.NeverVerify,
		EnableDebuggingHandlers:                ptr.To(true), EnableProfilingHandler: ptr.To(false),
		EnableDebugFlagsHandler: ptr.To(false),
		EnableSystemLogHandler:  ptr.To(false), EnableSystemLogQuery: ptr.To(false),
		NodeStatusUpdateFrequency: span(10 * time.Second), NodeStatusReportFrequency: span(5 * time.Minute),
		NodeLeaseDurationSeconds: 40,
		VolumeStatsAggPeriod:     span(time.Minute), NodeStatusMaxImages: ptr.To[int32](50),
		CgroupsPerQOS:    ptr.To(true),
		CPUManagerPolicy: "none", MemoryManagerPolicy: kubelet.NoneMemoryManagerPolicy,
		MemoryReservationPolicy: kubelet.NoneMemoryReservationPolicy,
		TopologyManagerPolicy:   kubelet.NoneTopologyManagerPolicy,
		TopologyManagerScope:    kubelet.ContainerTopologyManagerScope,
		RuntimeRequestTimeout:   span(2 * time.Minute), HairpinMode: kubelet.HairpinVeth,
		CPUCFSQuota: ptr.To(true), CPUCFSQuotaPeriod: ptr.To(span(100 * time.Millisecond)),
		ContentType:                  "application/vnd.kubernetes.protobuf",
		EnableControllerAttachDetach: ptr.To(true), MakeIPTablesUtilChains: ptr.To(false),
		EnforceNodeAllocatable:                    []string{"pods"},
		MemorySwap:                                kubelet.MemorySwapConfiguration{SwapBehavior: "NoSwap"},
		ContainerLogMaxWorkers:                    ptr.To[int32](1),
		ContainerLogMonitorInterval:               ptr.To(span(10 * time.Second)),
		ConfigMapAndSecretChangeDetectionStrategy: kubelet.WatchChangeDetectionStrategy,
		Logging:          logsapi.LoggingConfiguration{Format: "text"},
		CrashLoopBackOff: kubelet.CrashLoopBackOffConfig{MaxContainerRestartPeriod: ptr.To(span(5 * time.Minute))},
		RegisterNode:     ptr.To(true), LocalStorageCapacityIsolation: ptr.To(true),
		UserNamespaces: &kubelet.UserNamespaces{IDsPerPod: ptr.To[int64](65536)},
	}
}

// idle are values that a file may have though things are otherwise here: what a kubelet takes when nothing is said,
// where that means nothing here and nobody misses it. Pulls, events and calls are bounded in other ways, files are
// looked at more often, bridges let a pod reach itself in either way, and there is no iptables.
func idle() *Configuration {
	return &Configuration{
		PodLogsDir: "/var/log/pods/", FileCheckFrequency: span(20 * time.Second), HTTPCheckFrequency: span(20 * time.Second),
		RegistryPullQPS: ptr.To[int32](5), RegistryBurst: 10, EventRecordQPS: ptr.To[int32](50), EventBurst: 100,
		KubeAPIQPS: ptr.To[int32](50), KubeAPIBurst: 100, HairpinMode: kubelet.PromiscuousBridge,
		StreamingConnectionIdleTimeout: span(4 * time.Hour), CPUManagerReconcilePeriod: span(10 * time.Second),
		CPUManagerPolicy:       "None",
		MakeIPTablesUtilChains: ptr.To(true), IPTablesMasqueradeBit: ptr.To[int32](14), IPTablesDropBit: ptr.To[int32](15),
		MaxOpenFiles: 1000000, VolumePluginDir: "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/",
		Logging: logsapi.LoggingConfiguration{FlushFrequency: logsapi.TimeOrMetaDuration{Duration: span(5 * time.Second)}},
	}
}

// why says of fields why they cannot be something else, by their names or the beginnings of these.
var why = map[string]string{
	"staticPodURL":             "static pods are read from files, in staticPodPath",
	"address":                  "the node's API is served at every address of the machine",
	"readOnlyPort":             "everybody who asks the node's API has a certificate or a token",
	"tlsCertFile":              "the node's serving certificate comes from the cluster",
	"tlsPrivateKeyFile":        "the node's serving certificate comes from the cluster",
	"authentication.x509":      "whose certificates count is what the cluster says",
	"authentication.anonymous": "everybody who asks the node's API has a certificate or a token",
	"authorization":            "the cluster decides who may ask the node's API",
	"imagePullCredentialsVerif": "an image that is on the node is for all of its pods; let pods pull with " +
		"imagePullPolicy: Always",
	"preloadedImages": "an image that is on the node is for all of its pods; let pods pull with " +
		"imagePullPolicy: Always",
	"enableProfilingHandler":           "there is no such page",
	"enableDebugFlagsHandler":          "there is no such page",
	"enableSystemLog":                  "there is no such page",
	"cpuManagerPolicy":                 "there is no CPU manager",
	"memoryManagerPolicy":              "there is no memory manager",
	"reservedMemory":                   "there is no memory manager",
	"topologyManager":                  "there is no topology manager",
	"reservedSystemCPUs":               "there is no CPU manager; use systemReserved",
	"enforceNodeAllocatable":           "what is reserved is kept from all pods together; nobody else is bounded",
	"systemReservedCgroup":             "what is reserved is kept from all pods together; nobody else is bounded",
	"kubeReservedCgroup":               "what is reserved is kept from all pods together; nobody else is bounded",
	"podCIDR":                          "the control plane gives the node its pod network",
	"featureGates":                     "the agent has no feature gates",
	"memorySwap":                       "containers get no swap",
	"shutdownGracePeriodByPodPriority": "use shutdownGracePeriod and shutdownGracePeriodCriticalPods",
	"hairpinMode":                      "pods reach themselves by their Service",
	"volumePluginDir":                  "there are no FlexVolumes",
	"runOnce":                          "use static pods",
	"logging":                          "the agent writes its log as text; verbosity can be set",
	"nodeStatus":                       "the node reports every 10 seconds what changed",
	"nodeLeaseDurationSeconds":         "the control plane goes by this duration",
}
