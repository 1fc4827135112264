// Parts: what a worker is made of, in the order in which the parts use each other.
//
// Ownership: owned by the engine, as is what it is made of. Threads: made on "pw-start"; then each part's. Locks: none.
#ifndef PTPATHWAYS_WORKER_PARTS_H_
#define PTPATHWAYS_WORKER_PARTS_H_

#include <memory>
#include <utility>

#include "csrc/worker/activity.h"
#include "csrc/worker/buffers.h"
#include "csrc/worker/cluster_view.h"
#include "csrc/worker/completions.h"
#include "csrc/worker/dispatch.h"
#include "csrc/worker/files.h"
#include "csrc/worker/functions.h"
#include "csrc/worker/gangs.h"
#include "csrc/worker/host_context.h"
#include "csrc/worker/incoming.h"
#include "csrc/worker/input_pipelines.h"
#include "csrc/worker/launcher.h"
#include "csrc/worker/membership.h"
#include "csrc/worker/parking.h"
#include "csrc/worker/plan_host.h"
#include "csrc/worker/program_runs.h"
#include "csrc/worker/programs.h"
#include "csrc/worker/queries.h"
#include "csrc/worker/root_causes.h"
#include "csrc/worker/runs.h"
#include "csrc/worker/spills.h"

namespace pathways::worker {

struct Parts : private CompileListener {
  struct Options {
    std::unique_ptr<Compiler> compiler;
    bool one_client = false;  // as in Functions
    std::shared_ptr<Pinner> pinner;
    FileRoot root;
    InputPipelineOptions pipelines;
  };
  Parts(HostContext& the_context, Incoming& the_incoming, dataplane::DataPlane& the_data,
        transport::ControlLine& the_control, Stopper& the_stopper, Options the_options)
      : context(the_context),
        incoming(the_incoming),
        data(the_data),
        control(the_control),
        stopper(the_stopper),
        options(std::move(the_options)) {}

  HostContext& context;
  Incoming& incoming;
  dataplane::DataPlane& data;
  transport::ControlLine& control;
  Stopper& stopper;
  Options options;

  ClusterView cluster;
  RootCauses causes;
  Parking parking;
  Completions completions{context, causes};
  Gangs gangs{context, cluster, causes, completions, data};
  Functions functions{context, cluster, std::move(options.compiler), options.one_client, *this};
  Launcher launcher{context, gangs, [this] { context.engine().Post([this] { dispatch.Resume(); }); }};
  Runs runs{context, cluster, functions, launcher, completions, gangs};
  Buffers buffers{context, cluster, causes, incoming, data, options.pinner};
  Programs programs{context, functions};
  PlanHost plan_host{context, cluster, buffers, incoming, launcher, completions, data};
  ProgramRuns program_runs{context, programs, plan_host, buffers, incoming, completions, gangs, causes, data};
  Spills spills{context, data};
  Files files{context, incoming, std::move(options.root)};
  InputPipelines pipelines{context, incoming, std::move(options.pipelines)};
  Activity activity{context, cluster, functions, completions, gangs, buffers, parking, incoming, data};
  Queries queries{context, functions, programs, activity};
  Membership membership{context, cluster, causes, gangs, incoming, data, control, stopper};
  Dispatch dispatch{*this};

 private:
  void Compiled(uint64_t program, const Status& status) override { programs.Compiled(program, status); }
  void Answer(const wire::Query& query) override { queries.Answer(query); }
};

}  // namespace pathways::worker

#endif  // PTPATHWAYS_WORKER_PARTS_H_
