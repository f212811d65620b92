#!/usr/bin/env python3
"""Writes pytorch_programs.txt: programs with what PyTorch makes of them.

Every operator's results and gradients in float64, with data that both sides
make from names and positions (`filled`). Run it by hand when a case is added:
the test needs no PyTorch.
"""

import pathlib

import torch
import torch.nn.functional as F

NORM = "gamma=4 beta=4 mean=4! var=4!"

# Name, inputs, parameters ("!": fixed), steps, and the same in PyTorch. The
# last step makes y.
CASES = [
    ("conv", "x=2x3x6x7", "w=4x3x3x2 b=4",
     "y = conv(x, w, b, dilation=[1, 2], padding=[1, 2], stride=2)",
     lambda v: F.conv2d(v["x"], v["w"], v["b"], 2, (1, 2), (1, 2))),
    ("conv_same_even_kernel", "x=1x2x7", "w=2x1x4",
     "y = conv(x, w, dilation=3, groups=2, padding=same)",
     lambda v: F.conv1d(v["x"], v["w"], None, 1, "same", 3, 2)),
    ("conv_transpose", "x=1x4x4x3", "w=4x2x3x3 b=4",
     "y = conv_transpose(x, w, b, dilation=2, groups=2, output_padding=1, "
     "padding=1, stride=2)",
     lambda v: F.conv_transpose2d(v["x"], v["w"], v["b"], 2, 1, 1, 2, 2)),
    ("conv_3d", "x=1x2x3x4x3", "w=3x2x2x2x2", "y = conv(x, w)",
     lambda v: F.conv3d(v["x"], v["w"])),
    ("linear", "x=3x5", "w=4x5 b=4", "y = linear(x, w, b)",
     lambda v: F.linear(v["x"], v["w"], v["b"])),
    ("batch_norm_training", "x=3x4x2x2", NORM,
     "y = batch_norm(x, gamma, beta, mean, var, eps=0.001, momentum=0.25, "
     "training=true)",
     lambda v: F.batch_norm(v["x"], v["mean"], v["var"], v["gamma"], v["beta"],
                            True, 0.25, 0.001)),
    ("batch_norm_eval", "x=3x4x5", NORM,
     "y = batch_norm(x, gamma, beta, mean, var)",
     lambda v: F.batch_norm(v["x"], v["mean"], v["var"], v["gamma"],
                            v["beta"])),
    ("max_pool", "x=2x2x7x6", "",
     "y = max_pool(x, ceil_mode=true, kernel_size=3, padding=1, stride=2)",
     lambda v: F.max_pool2d(v["x"], 3, 2, 1, 1, True)),
    ("max_pool_beyond_the_input", "x=1x2x2x1", "",
     "y = max_pool(x, ceil_mode=true, kernel_size=[3, 4], stride=[2, 5])",
     lambda v: F.max_pool2d(v["x"], (3, 4), (2, 5), ceil_mode=True)),
    ("max_pool_dilated", "x=1x2x9", "",
     "y = max_pool(x, dilation=2, kernel_size=3, padding=1, stride=1)",
     lambda v: F.max_pool1d(v["x"], 3, 1, 1, 2)),
    ("avg_pool", "x=1x2x7x6", "",
     "y = avg_pool(x, ceil_mode=true, kernel_size=[3, 2], padding=1, stride=2)",
     lambda v: F.avg_pool2d(v["x"], (3, 2), 2, 1, True)),
    ("avg_pool_without_pads", "x=1x2x7x6", "",
     "y = avg_pool(x, ceil_mode=true, count_include_pad=false, "
     "kernel_size=[3, 2], padding=1, stride=3)",
     lambda v: F.avg_pool2d(v["x"], (3, 2), 3, 1, True, False)),
    ("avg_pool_beyond_the_input", "x=1x2x2x3", "",
     "y = avg_pool(x, ceil_mode=true, kernel_size=[5, 7], padding=1, "
     "stride=[3, 4])",
     lambda v: F.avg_pool2d(v["x"], (5, 7), (3, 4), 1, True)),
    ("avg_pool_beyond_the_input_without_pads", "x=1x2x2x3", "",
     "y = avg_pool(x, ceil_mode=true, count_include_pad=false, kernel_size=7, "
     "padding=1, stride=4)",
     lambda v: F.avg_pool2d(v["x"], 7, 4, 1, True, False)),
    ("avg_pool_divisor", "x=1x1x4x4x4", "",
     "y = avg_pool(x, divisor_override=3, kernel_size=2)",
     lambda v: F.avg_pool3d(v["x"], 2, divisor_override=3)),
    ("adaptive_avg_pool", "x=1x2x7x5", "",
     "y = adaptive_avg_pool(x, output_size=[3, 4])",
     lambda v: F.adaptive_avg_pool2d(v["x"], (3, 4))),
    ("group_norm", "x=2x6x2x2", "w=6 b=6",
     "y = group_norm(x, w, b, eps=0.125, groups=3)",
     lambda v: F.group_norm(v["x"], 3, v["w"], v["b"], 0.125)),
    ("adaptive_max_pool", "x=1x2x7x5", "",
     "y = adaptive_max_pool(x, output_size=[3, 4])",
     lambda v: F.adaptive_max_pool2d(v["x"], (3, 4))),
    ("reductions", "x=2x3x4", "",
     "a = sum(x, dim=1)\nc = amax(x, dim=1)\n"
     "d = norm(x, dim=-1)\ne = var(x, dim=-1)\n"
     "y = concat(a, c, d, e)",
     lambda v: torch.cat([v["x"].sum(1), v["x"].amax(1), v["x"].norm(dim=-1),
                          v["x"].var(-1)], 1)),
    ("reductions_over_the_batch", "x=2x3x4", "",
     "a = mean(x, dim=[0, -2], keepdim=true)\n"
     "b = var(x, correction=0, dim=[0, 2], keepdim=true)\n"
     "c = norm(x, dim=[0, 1, 2], keepdim=true)\nd = mul(x, a)\n"
     "e = mul(d, b)\ny = mul(e, c)",
     lambda v: v["x"] * v["x"].mean((0, -2), True)
     * v["x"].var((0, 2), correction=0, keepdim=True)
     * torch.linalg.vector_norm(v["x"], dim=(0, 1, 2), keepdim=True)),
    ("amax_of_equals", "x=2x3x4", "",
     "a = mul(x, other=0)\nb = amax(a, dim=[1, 2], keepdim=true)\n"
     "y = mul(x, b)",
     lambda v: v["x"] * (v["x"] * 0).amax((1, 2), True)),
    ("prelu", "x=2x3x4", "w=3",
     "a = read(w, shape=[1, -1, 1])\ny = prelu(x, a)",
     lambda v: F.prelu(v["x"], v["w"])),
    ("masks", "x=2x8x4 z=2x8x1", "",
     "a = gt(x, z)\nb = lt(x, other=0.25)\nc = le(x, z)\nd = ge(x, other=-0.5)\n"
     "e = eq(x, x)\nf = mul(b, d)\ng = where(f, x, z)\nh = where(c, z, x)\n"
     "i = where(a, z, other=2)\nj = mul(x, e)\ny = concat(g, h, i, j)",
     lambda v: torch.cat([
         torch.where((v["x"] < 0.25) & (v["x"] >= -0.5), v["x"], v["z"]),
         torch.where(v["x"] <= v["z"], v["z"], v["x"]),
         torch.where(v["x"] > v["z"], v["z"], 2.0), v["x"]], 1)),
    ("mean_and_sum", "x=2x2x3x4", "",
     "a = mean(x, dim=[2, 3], keepdim=true)\nb = sum(x, dim=3, keepdim=true)\n"
     "c = mean(b, dim=2, keepdim=true)\ny = concat(a, c)",
     lambda v: torch.cat([v["x"].mean((2, 3), True),
                          v["x"].sum(3, True).mean(2, True)], 1)),
    ("activations", "x=2x8x4", "",
     "a = relu(x)\nb = relu6(x)\nc = leaky_relu(x, negative_slope=0.2)\n"
     "d = sigmoid(x)\ne = silu(x)\ny = concat(a, b, c, d, e)",
     lambda v: torch.cat([F.relu(v["x"]), F.relu6(v["x"]),
                          F.leaky_relu(v["x"], 0.2), torch.sigmoid(v["x"]),
                          F.silu(v["x"])], 1)),
    ("smooth_activations", "x=2x8x4", "",
     "s = mul(x, other=6.0)\na = gelu(s)\nb = gelu(s, approximate=tanh)\n"
     "c = mish(s)\nd = softplus(s, beta=2.0, threshold=8)\n"
     "e = elu(s, alpha=0.75)\nf = tanh(s)\ny = concat(a, b, c, d, e, f)",
     lambda v: torch.cat([F.gelu(6 * v["x"]),
                          F.gelu(6 * v["x"], approximate="tanh"),
                          F.mish(6 * v["x"]), F.softplus(6 * v["x"], 2, 8),
                          F.elu(6 * v["x"], 0.75), torch.tanh(6 * v["x"])],
                         1)),
    # PyTorch's own hardsigmoid has a gradient of f32(1/6), in float64, too.
    ("hard_activations", "x=2x8x8", "",
     "s = mul(x, other=4)\na = hardsigmoid(s)\nb = hardswish(s)\n"
     "c = hardtanh(s)\nd = clamp(s, max=2, min=-3)\ne = clamp(s, min=-2)\n"
     "f = abs(s)\ny = concat(a, b, c, d, e, f)",
     lambda v: torch.cat([F.relu6(4 * v["x"] + 3) / 6, F.hardswish(4 * v["x"]),
                          F.hardtanh(4 * v["x"]), (4 * v["x"]).clamp(-3, 2),
                          (4 * v["x"]).clamp(min=-2), (4 * v["x"]).abs()], 1)),
    ("roots", "x=2x8x4", "",
     "p = add(x, other=1.25)\na = neg(x)\nb = exp(a)\nc = sqrt(p)\n"
     "d = rsqrt(p)\ne = reciprocal(p)\ny = concat(b, c, d, e)",
     lambda v: torch.cat([(-v["x"]).exp(), (v["x"] + 1.25).sqrt(),
                          (v["x"] + 1.25).rsqrt(),
                          (v["x"] + 1.25).reciprocal()], 1)),
    ("logarithms_and_powers", "x=2x8x4 var=2x8x4", "",
     "a = log(var)\nb = pow(var, exponent=-1.5)\nc = pow(x, exponent=3)\n"
     "d = sin(x)\ne = cos(x)\ny = concat(a, b, c, d, e)",
     lambda v: torch.cat([v["var"].log(), v["var"] ** -1.5, v["x"] ** 3,
                          v["x"].sin(), v["x"].cos()], 1)),
    ("relu6_top", "x=2x8x4", "w=8x8x1",
     "a = conv(x, w, padding=same)\nb = mul(a, a)\ny = relu6(b)",
     lambda v: F.relu6(F.conv1d(v["x"], v["w"], padding="same") ** 2)),
    ("add_and_mul", "x=2x3x2x2 s=2x3x1x1 n=2x1x1x1", "",
     "a = mul(x, s)\nb = add(a, n)\nc = add(b, x)\ny = mul(c, c)",
     lambda v: (v["x"] * v["s"] + v["n"] + v["x"]) ** 2),
    ("sub_and_div", "x=2x3x2x2 s=2x3x1x1 var=1x3x1x1 z=2x3x2x2", "",
     "a = sub(x, s)\nb = div(a, var)\nc = sub(b, z)\nd = div(c, other=3)\n"
     "y = div(d, var)",
     lambda v: ((v["x"] - v["s"]) / v["var"] - v["z"]) / 3 / v["var"]),
    ("div_by_values", "x=2x3x2 var=2x3x2", "", "y = div(x, var)",
     lambda v: v["x"] / v["var"]),
    ("maximum_and_minimum", "x=2x3x2x2 z=2x3x2x2 s=2x1x1x1", "",
     "a = maximum(x, z)\nb = minimum(x, z)\nc = maximum(x, s)\n"
     "d = minimum(x, s)\ny = concat(a, b, c, d)",
     lambda v: torch.cat([torch.maximum(v["x"], v["z"]),
                          torch.minimum(v["x"], v["z"]),
                          torch.maximum(v["x"], v["s"]),
                          torch.minimum(v["x"], v["s"])], 1)),
    ("maximum_of_equals", "x=2x3x2", "",
     "a = mul(x, other=-1)\nb = neg(x)\nc = maximum(a, b)\n"
     "y = minimum(c, a)",
     lambda v: torch.minimum(torch.maximum(v["x"] * -1, -v["x"]),
                             v["x"] * -1)),
    ("concat_and_flatten", "x=2x3x2 z=2x1x2", "",
     "a = concat(x, z, x)\ny = flatten(a)",
     lambda v: torch.flatten(torch.cat([v["x"], v["z"], v["x"]], 1), 1)),
    ("upsample_nearest_size", "x=1x2x3x4", "", "y = upsample(x, size=[7, 5])",
     lambda v: F.interpolate(v["x"], (7, 5))),
    ("upsample_nearest_factor", "x=1x2x5", "",
     "y = upsample(x, scale_factor=1.7)",
     lambda v: F.interpolate(v["x"], scale_factor=1.7)),
    ("upsample_nearest_same_extent", "x=1x1x4x3", "",
     "y = upsample(x, scale_factor=1.1)",
     lambda v: F.interpolate(v["x"], scale_factor=1.1)),
    ("upsample_nearest_twice_the_extent", "x=1x1x4x3", "",
     "y = upsample(x, scale_factor=[2.1, 2.3])",
     lambda v: F.interpolate(v["x"], scale_factor=(2.1, 2.3))),
    ("upsample_bilinear_same_extent", "x=1x1x4x3", "",
     "y = upsample(x, mode=bilinear, scale_factor=[1.1, 2.1])",
     lambda v: F.interpolate(v["x"], scale_factor=(1.1, 2.1),
                             mode="bilinear")),
    ("upsample_bilinear_size", "x=1x2x3x4", "",
     "y = upsample(x, mode=bilinear, size=[7, 5])",
     lambda v: F.interpolate(v["x"], (7, 5), mode="bilinear")),
    ("upsample_bilinear_factor", "x=1x1x3x4", "",
     "y = upsample(x, mode=bilinear, scale_factor=[1.6, 2])",
     lambda v: F.interpolate(v["x"], scale_factor=(1.6, 2), mode="bilinear")),
    ("upsample_bilinear_corners", "x=1x1x3x4", "",
     "y = upsample(x, align_corners=true, mode=bilinear, size=[5, 6])",
     lambda v: F.interpolate(v["x"], (5, 6), mode="bilinear",
                             align_corners=True)),
    ("upsample_linear_size", "x=1x2x5", "",
     "y = upsample(x, mode=linear, size=8)",
     lambda v: F.interpolate(v["x"], 8, mode="linear")),
    ("upsample_linear_same_extent", "x=1x1x5", "",
     "y = upsample(x, mode=linear, scale_factor=1.1)",
     lambda v: F.interpolate(v["x"], scale_factor=1.1, mode="linear")),
    ("upsample_trilinear_factor", "x=1x1x2x3x4", "",
     "y = upsample(x, mode=trilinear, scale_factor=[2, 1.1, 1.6])",
     lambda v: F.interpolate(v["x"], scale_factor=(2, 1.1, 1.6),
                             mode="trilinear")),
    ("upsample_trilinear_corners", "x=1x1x2x3x2", "",
     "y = upsample(x, align_corners=true, mode=trilinear, size=[3, 4, 1])",
     lambda v: F.interpolate(v["x"], (3, 4, 1), mode="trilinear",
                             align_corners=True)),
    ("upsample_bicubic_size", "x=1x2x3x4", "",
     "y = upsample(x, mode=bicubic, size=[7, 5])",
     lambda v: F.interpolate(v["x"], (7, 5), mode="bicubic")),
    ("upsample_bicubic_factor", "x=1x1x4x3", "",
     "y = upsample(x, mode=bicubic, scale_factor=[1.1, 2])",
     lambda v: F.interpolate(v["x"], scale_factor=(1.1, 2), mode="bicubic")),
    ("upsample_bicubic_corners", "x=1x1x3x4", "",
     "y = upsample(x, align_corners=true, mode=bicubic, size=[2, 6])",
     lambda v: F.interpolate(v["x"], (2, 6), mode="bicubic",
                             align_corners=True)),
    ("normalize", "x=2x3x2x2", "",
     "y = normalize(x, mean=[0.5, 0.25, 1.5], std=[2, 4, 0.5])",
     lambda v: (v["x"] - torch.tensor([.5, .25, 1.5]).view(3, 1, 1))
     / torch.tensor([2., 4., .5]).view(3, 1, 1)),
    ("dropout_eval", "x=2x3", "", "y = dropout(x)", lambda v: v["x"] * 1),
    ("cross_entropy", "x=6x5 t=6", "", "y = cross_entropy(x, t)",
     lambda v: F.cross_entropy(v["x"], v["t"])),
    ("cross_entropy_all", "x=3x4x2x2 t=3x2x2", "w=4!",
     "y = cross_entropy(x, t, w, ignore_index=1, label_smoothing=0.25)",
     lambda v: F.cross_entropy(v["x"], v["t"], v["w"], ignore_index=1,
                               label_smoothing=0.25)),
    ("cross_entropy_sum", "x=6x5 t=6", "w=5!",
     "y = cross_entropy(x, t, w, reduction=sum)",
     lambda v: F.cross_entropy(v["x"], v["t"], v["w"], reduction="sum")),
    ("cross_entropy_denominator", "x=6x5 t=6", "",
     "y = cross_entropy(x, t, denominator=10)",
     lambda v: F.cross_entropy(v["x"], v["t"], reduction="sum") / 10),
    ("cross_entropy_soft", "x=6x5 z=6x5", "", "y = cross_entropy(x, z)",
     lambda v: F.cross_entropy(v["x"], v["z"])),
    ("cross_entropy_soft_all", "x=3x4x2x2 z=3x4x2x2", "w=4!",
     "y = cross_entropy(x, z, w, label_smoothing=0.25)",
     lambda v: F.cross_entropy(v["x"], v["z"], v["w"], label_smoothing=0.25)),
    ("cross_entropy_soft_sum", "x=6x5 z=6x5", "w=5!",
     "y = cross_entropy(x, z, w, label_smoothing=0.5, reduction=sum)",
     lambda v: F.cross_entropy(v["x"], v["z"], v["w"], reduction="sum",
                               label_smoothing=0.5)),
    ("mse", "x=2x3x2 z=2x3x2", "", "y = mse(x, z)",
     lambda v: F.mse_loss(v["x"], v["z"])),
    ("mse_sum", "x=2x3 z=2x3", "", "y = mse(x, z, reduction=sum)",
     lambda v: F.mse_loss(v["x"], v["z"], reduction="sum")),
    ("l1", "x=2x3x2 z=2x3x2", "", "y = l1(x, z)",
     lambda v: F.l1_loss(v["x"], v["z"])),
    ("smooth_l1", "x=2x3x2 z=2x3x2", "", "y = smooth_l1(x, z, beta=0.75)",
     lambda v: F.smooth_l1_loss(v["x"], v["z"], beta=.75)),
    ("smooth_l1_sum", "x=2x3 z=2x3", "", "y = smooth_l1(x, z, reduction=sum)",
     lambda v: F.smooth_l1_loss(v["x"], v["z"], reduction="sum")),
    ("binary_cross_entropy", "x=2x3x2 z=2x3x2", "",
     "y = binary_cross_entropy_with_logits(x, z)",
     lambda v: F.binary_cross_entropy_with_logits(v["x"], v["z"])),
    ("binary_cross_entropy_weighted", "x=2x3 z=2x3", "",
     "y = binary_cross_entropy_with_logits(x, z, pos_weight=2.5, reduction=sum)",
     lambda v: F.binary_cross_entropy_with_logits(
         v["x"], v["z"], pos_weight=torch.tensor(2.5), reduction="sum")),
    ("linear_of_tokens", "x=2x3x5", "w=4x5 b=4", "y = linear(x, w, b)",
     lambda v: F.linear(v["x"], v["w"], v["b"])),
    ("layer_norm", "x=2x3x5", "w=5 b=5", "y = layer_norm(x, w, b)",
     lambda v: F.layer_norm(v["x"], (5,), v["w"], v["b"])),
    ("layer_norm_of_two_axes", "x=2x3x5", "w=3x5",
     "y = layer_norm(x, w, none, axes=2, eps=0.125)",
     lambda v: F.layer_norm(v["x"], (3, 5), v["w"], None, 0.125)),
    ("rms_norm", "x=2x3x5", "w=5", "y = rms_norm(x, w, eps=0.125)",
     lambda v: v["x"] / ((v["x"] ** 2).mean(-1, True) + 0.125).sqrt()
     * v["w"]),
    ("softmax", "x=2x3x5", "", "y = softmax(x)",
     lambda v: F.softmax(v["x"], -1)),
    ("log_softmax", "x=2x3x5", "", "y = log_softmax(x, axis=1)",
     lambda v: F.log_softmax(v["x"], 1)),
    ("views", "x=2x3x5x4", "p=4",
     "a = permute(x, dims=[0, 3, 1, 2])\nb = reshape(a, shape=[-1, 6, 10])\n"
     "c = slice(b, axis=1, end=6, start=1, step=2)\nd = select(c, axis=1, index=2)\n"
     "e = reshape(d, shape=[-1, 1, 10])\nf = expand(e, none, shape=[-1, 2, -1])\n"
     "g = concat(f, c, axis=1)\nh = read(p, shape=[1, 1, 1, -1])\n"
     "i = mul(x, h)\nj = reshape(i, shape=[-1, 6, 10])\nk = concat(j, j, axis=1)\n"
     "y = concat(g, k, axis=1)",
     lambda v: views(v["x"], v["p"])),
    ("pads", "x=2x3x4x5", "",
     "a = pad(x, pads=[1, 2, 0, 1, 1, 0], value=0.5)\n"
     "b = pad(x, mode=reflect, pads=[2, 1, 3, 0])\n"
     "c = pad(x, mode=replicate, pads=[2, 1, 3, 0])\n"
     "d = pad(x, mode=circular, pads=[2, 1, 3, 0])\n"
     "e = concat(b, c, d)\nf = flatten(a)\ng = flatten(e)\ny = concat(f, g)",
     lambda v: torch.cat([F.pad(v["x"], (1, 2, 0, 1, 1, 0), value=0.5).flatten(1)]
                         + [F.pad(v["x"], (2, 1, 3, 0), mode=mode).flatten(1)
                            for mode in ("reflect", "replicate", "circular")], 1)),
    ("index_select", "x=2x5x3", "t=4x2!", "y = index_select(x, t, axis=1)",
     lambda v: v["x"][:, v["t"]]),
    ("broadcasts", "x=2x3x4 z=1x3x4 m=2x1x4", "",
     "a = add(x, z)\ny = mul(a, m)",
     lambda v: (v["x"] + v["z"]) * v["m"]),
    ("matmul", "x=2x1x3x4 z=1x2x4x5", "", "y = matmul(x, z)",
     lambda v: v["x"] @ v["z"]),
    ("attention", "x=2x3x4 k=2x5x4 z=2x5x3 m=1x3x5", "",
     "y = attention(x, k, z, m, scale=0.75)",
     lambda v: F.softmax(v["x"] @ v["k"].mT * 0.75 + v["m"], -1) @ v["z"]),
    ("attention_causal", "x=2x3x4 z=2x3x4", "",
     "y = attention(x, z, z, causal=true)",
     lambda v: F.softmax(v["x"] @ v["z"].mT / 2 + torch.full(
         (3, 3), -torch.inf).triu(1), -1) @ v["z"]),
    ("weight_of_a_value", "x=2x4x5", "w=6x2x3 g=6",
     "a = read(w)\nb = tanh(a)\ny = conv(x, b, g, groups=2)",
     lambda v: F.conv1d(v["x"], v["w"].tanh(), v["g"], groups=2)),
    ("residual_block", "x=2x4x5x5", "w=4x4x3x3 " + NORM,
     "a = conv(x, w, padding=1)\n"
     "b = batch_norm(a, gamma, beta, mean, var, training=true)\n"
     "c = add(b, x)\nd = relu(c)\ny = conv(d, w, padding=1)",
     lambda v: F.conv2d(F.relu(F.batch_norm(
         F.conv2d(v["x"], v["w"], padding=1), v["mean"], v["var"], v["gamma"],
         v["beta"], True) + v["x"]), v["w"], padding=1)),
]


def views(x, p):
    b = x.permute(0, 3, 1, 2).reshape(-1, 6, 10)
    c = b[:, 1:6:2]
    f = c[:, 2].reshape(-1, 1, 10).expand(-1, 2, -1)
    j = (x * p).reshape(-1, 6, 10)
    return torch.cat([f, c, j, j], 1)


def filled(name, dims):
    """Returns what ProgramFill of the C++ tests returns: n/64 from -1 to 1."""
    count = int(torch.Size(dims).numel())
    salt = sum(name.encode()) * 40503
    hashes = [(i * 2654435761 + salt) % 2**32 * 2246822519 % 2**32 >> 25
              for i in range(count)]
    if name == "t":
        return torch.tensor([h % 4 for h in hashes]).reshape(dims)
    numbers = torch.tensor(hashes, dtype=torch.float64) / 64 - 1
    if name == "var" or name == "w" and len(dims) == 1:
        numbers = numbers.abs() + 0.5
    return numbers.reshape(dims)


def dims_of(text):
    """Reads "x=2x3 w=4!" as {"x": [2, 3], "w": [4]}."""
    pairs = (part.rstrip("!").split("=") for part in text.split())
    return {name: [int(n) for n in dims.split("x")] for name, dims in pairs}


def lines_of(name, inputs, parameters, steps, function):
    yield f"== {name} {inputs}"
    yield from (f"input {i}{' index' * (i == 't')}" for i in dims_of(inputs))
    for part in parameters.split():
        parameter, dims = part.rstrip("!").split("=")
        fixed = " i64" * (parameter == "t") + " fixed" * part.endswith("!")
        yield f"parameter {parameter} [{dims.replace('x', ', ')}]{fixed}"
    yield steps
    yield "output y"
    values = {n: filled(n, d) for n, d in dims_of(f"{inputs} {parameters}").items()}
    wanted = [n for n in values if n != "t" and n + "!" not in parameters
              and not any(p.startswith(n + "=") and p.endswith("!")
                          for p in parameters.split())]
    for wanted_name in wanted:
        values[wanted_name].requires_grad_()
    result = function(values)
    yield expected("y", result)
    gradients = torch.autograd.grad(result, [values[n] for n in wanted],
                                    filled("g", list(result.shape)))
    yield from (expected(f"{n}#gradient", g) for n, g in zip(wanted, gradients))
    if "training=true" in steps:
        yield expected("mean", values["mean"])
        yield expected("var", values["var"])


def expected(name, tensor):
    numbers = tensor.detach().double().flatten().tolist()
    return f"> {name} {' '.join(repr(n) for n in numbers)}"


def main():
    torch.set_default_dtype(torch.float64)
    path = pathlib.Path(__file__).with_suffix(".txt")
    lines = ["# Written by pytorch_programs.py."]
    for case in CASES:
        lines += lines_of(*case)
    path.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
