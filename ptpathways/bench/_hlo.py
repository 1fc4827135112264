"""Modules that workloads run, as StableHLO text; all take and give a float32 scalar (of each device)."""

from __future__ import annotations


def add_chain(length: int) -> bytes:
    """Adds one, ``length`` times in sequence."""
    sums = "".join(f"    %{i + 1} = stablehlo.add %{i}, %one : tensor<f32>\n" for i in range(length))
    return f"""module @add_{length} {{
  func.func public @main(%0: tensor<f32>) -> tensor<f32> {{
    %one = stablehlo.constant dense<1.0> : tensor<f32>
{sums}    return %{length} : tensor<f32>
  }}
}}""".encode()


def all_reduce(devices: int, length: int) -> bytes:
    """The mean over ``devices`` partitions, plus one; ``length`` times in sequence.

    One scalar for each partition: the text says manually partitioned, so that no partitioner changes it.
    """
    group = ", ".join(str(device) for device in range(devices))
    lines = []
    for i in range(length):
        lines.append(f"""    %s{i} = "stablehlo.all_reduce"(%{i}) ({{
      ^bb0(%x: tensor<f32>, %y: tensor<f32>):
        %z = stablehlo.add %x, %y : tensor<f32>
        stablehlo.return %z : tensor<f32>
    }}) {{replica_groups = dense<[[{group}]]> : tensor<1x{devices}xi64>, use_global_device_ids,
         channel_handle = #stablehlo.channel_handle<handle = {i + 1}, type = 1>}} : (tensor<f32>) -> tensor<f32>
    %m{i} = stablehlo.multiply %s{i}, %part : tensor<f32>
    %{i + 1} = stablehlo.add %m{i}, %one : tensor<f32>
""")
    return f"""module @all_reduce_{length} attributes {{mhlo.num_partitions = {devices} : i32,
    mhlo.num_replicas = 1 : i32}} {{
  func.func public @main(%0: tensor<f32>) -> tensor<f32> {{
    %one = stablehlo.constant dense<1.0> : tensor<f32>
    %part = stablehlo.constant dense<{1 / devices!r}> : tensor<f32>
{"".join(lines)}    return %{length} : tensor<f32>
  }}
}}""".encode()


def products(side: int, count: int) -> bytes:
    """``count`` products of bfloat16 matrices in sequence, each scaled so that values stay of their size.

    Takes and gives matrices of ``side`` by ``side``: the first factor, and the second of all products.
    """
    kind = f"tensor<{side}x{side}xbf16>"
    lines = "".join(
        f"    %d{i} = stablehlo.dot_general %{i}, %b, contracting_dims = [1] x [0] : ({kind}, {kind}) -> {kind}\n"
        f"    %{i + 1} = stablehlo.multiply %d{i}, %scale : {kind}\n"
        for i in range(count)
    )
    return f"""module @products_{count} {{
  func.func public @main(%0: {kind}, %b: {kind}) -> {kind} {{
    %one = stablehlo.constant dense<{side**-0.5!r}> : tensor<bf16>
    %scale = stablehlo.broadcast_in_dim %one, dims = [] : (tensor<bf16>) -> {kind}
{lines}    return %{count} : {kind}
  }}
}}""".encode()


def doubled_each(count: int, length: int) -> bytes:
    """Doubles each of ``count`` vectors of ``length`` numbers."""
    kind = f"tensor<{length}xf32>"
    arguments = ", ".join(f"%{i}: {kind}" for i in range(count))
    lines = "".join(f"    %d{i} = stablehlo.add %{i}, %{i} : {kind}\n" for i in range(count))
    kinds = ", ".join([kind] * count)
    return f"""module @doubled_each_{count} {{
  func.func public @main({arguments}) -> ({kinds}) {{
{lines}    return {", ".join(f"%d{i}" for i in range(count))} : {kinds}
  }}
}}""".encode()


def waiting(seconds: float) -> bytes:
    """Occupies its device for ``seconds`` without using a core, and gives its argument.

    The branch with a product of matrices is never taken. It makes the computation look dear, because XLA's CPU client
    runs cheap ones on the thread that enqueues them, which no accelerator does.
    """
    return f"""module @waiting {{
  func.func public @main(%x: tensor<f32>) -> tensor<f32> {{
    %y = stablehlo.custom_call @pathways.wait(%x) {{api_version = 4 : i32,
      backend_config = {{microseconds = {round(seconds * 1e6)} : i64}}}} : (tensor<f32>) -> tensor<f32>
    %most = stablehlo.constant dense<3.0e38> : tensor<f32>
    %never = stablehlo.compare GT, %y, %most : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %z = "stablehlo.if"(%never) ({{
      %a = stablehlo.broadcast_in_dim %y, dims = [] : (tensor<f32>) -> tensor<128x128xf32>
      %b = stablehlo.dot_general %a, %a, contracting_dims = [1] x [0] :
        (tensor<128x128xf32>, tensor<128x128xf32>) -> tensor<128x128xf32>
      %c = stablehlo.slice %b [0:1, 0:1] : (tensor<128x128xf32>) -> tensor<1x1xf32>
      %d = stablehlo.reshape %c : (tensor<1x1xf32>) -> tensor<f32>
      stablehlo.return %d : tensor<f32>
    }}, {{
      stablehlo.return %y : tensor<f32>
    }}) : (tensor<i1>) -> tensor<f32>
    return %z : tensor<f32>
  }}
}}""".encode()
